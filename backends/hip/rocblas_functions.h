#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"

namespace stagecoach {

// The functions of rocBLAS that are called: symbol, result, parameters. Statuses and enumerations
// are ints, handles void*. No header of rocBLAS is packaged by Debian, so nothing compares these
// with the real one.
#define STAGECOACH_ROCBLAS_FUNCTIONS(X)                                                           \
  X(rocblas_status_to_string, const char*, (int))                                                 \
  X(rocblas_get_version_string, int, (char*, size_t))                                             \
  X(rocblas_create_handle, int, (void**))                                                         \
  X(rocblas_destroy_handle, int, (void*))                                                         \
  X(rocblas_set_stream, int, (void*, void*))                                                      \
  X(rocblas_set_atomics_mode, int, (void*, int))                                                  \
  X(rocblas_set_workspace, int, (void*, void*, size_t))                                           \
  X(rocblas_gemm_ex, int,                                                                         \
    (void*, int, int, int32_t, int32_t, int32_t, const void*, const void*, int, int32_t,          \
     const void*, int, int32_t, const void*, const void*, int, int32_t, void*, int, int32_t, int, \
     int, int32_t, uint32_t))

/// rocBLAS's functions, all found. Plain data.
struct RocblasFunctions {
#define STAGECOACH_ROCBLAS_MEMBER(name, result, parameters) result(*name) parameters = nullptr;
  STAGECOACH_ROCBLAS_FUNCTIONS(STAGECOACH_ROCBLAS_MEMBER)
#undef STAGECOACH_ROCBLAS_MEMBER
};

/// rocBLAS's numbers that are passed to it (rocblas-types.h).
struct RocblasConstants {
  static constexpr int kSuccess = 0;
  static constexpr int kMemoryError = 5;
  static constexpr int kPerformanceDegraded = 7;  ///< the result is there
  static constexpr int kOperationNone = 111;
  static constexpr int kOperationTranspose = 112;
  static constexpr int kTypeFp16 = 150;
  static constexpr int kTypeFp32 = 151;
  static constexpr int kTypeBf16 = 168;
  static constexpr int kAtomicsNotAllowed = 0;
  static constexpr int kStandardAlgorithm = 0;
};

/// Names under which rocBLAS is looked for, newest first.
std::vector<std::string> rocblas_library_names();

/// Opens the first of `names`. The error lists every name tried, or the function that is missing.
Result<RocblasFunctions> load_rocblas_functions(std::span<const std::string> names);

}  // namespace stagecoach
