#pragma once

#include <cstdint>

#include "backends/hip/rocblas_functions.h"

namespace stagecoach {

/// What the fake rocBLAS is told to do and what it saw. One in the process.
struct FakeRocblas {
  int create_error = 0;  ///< what rocblas_create_handle returns
  int gemm_error = 0;    ///< what rocblas_gemm_ex returns

  int64_t products = 0;
  int64_t fp16_products = 0;  ///< of those, with sums in fp16
  int64_t handles = 0;        ///< that exist
  bool allows_atomics = true;
  size_t workspace_bytes = 0;
};

/// The fake's state; tests put `FakeRocblas()` into it first.
FakeRocblas& fake_rocblas();

/// A rocBLAS that computes at once on host memory, columns first. Misuse ends the process.
/// Thread rule: one thread at a time.
RocblasFunctions fake_rocblas_functions();

}  // namespace stagecoach
