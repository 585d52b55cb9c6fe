#pragma once

#include <cstdint>

#include "backends/cuda/cublaslt_functions.h"

namespace stagecoach {

/// What the fake cuBLASLt is told to do and what it saw. One in the process.
struct FakeCublasLt {
  int create_error = 0;        ///< what cublasLtCreate returns
  int heuristic_error = 0;     ///< what cublasLtMatmulAlgoGetHeuristic returns
  int matmul_error = 0;        ///< what cublasLtMatmul returns
  bool finds_nothing = false;  ///< the heuristic gives no algorithm
  /// The heuristic refuses matrices whose rows are no multiple of 16 bytes apart.
  bool needs_aligned_rows = false;
  int64_t refused_columns = 0;  ///< the heuristic refuses results of so many columns

  int64_t heuristics = 0;
  int64_t products = 0;
  int64_t fp16_products = 0;  ///< of those, with sums in fp16
  int64_t objects = 0;        ///< handles and descriptors that exist
};

/// The fake's state; tests put `FakeCublasLt()` into it first.
FakeCublasLt& fake_cublaslt();

/// A cuBLASLt that computes at once on host memory, in fp32, from the descriptors as the real one
/// reads them: columns first. Misuse ends the process. Thread rule: one thread at a time.
CublasLtFunctions fake_cublaslt_functions();

}  // namespace stagecoach
