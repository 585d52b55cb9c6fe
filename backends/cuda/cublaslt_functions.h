#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"

namespace stagecoach {

/// What the heuristic of cuBLASLt answers: cublasLtMatmulHeuristicResult_t. Plain data.
struct CublasLtChoice {
  std::array<uint64_t, 8> algorithm;
  size_t workspace_bytes;
  int status;
  float waves;
  std::array<int, 4> reserved;
};

// The functions of cuBLASLt that are called: symbol, result, parameters. Statuses and enumerations
// are ints, descriptors void*; cublaslt_header_check.cpp compares with the real header.
#define STAGECOACH_CUBLASLT_FUNCTIONS(X)                                                          \
  X(cublasLtGetVersion, size_t, ())                                                               \
  X(cublasLtGetStatusName, const char*, (int))                                                    \
  X(cublasLtGetStatusString, const char*, (int))                                                  \
  X(cublasLtCreate, int, (void**))                                                                \
  X(cublasLtDestroy, int, (void*))                                                                \
  X(cublasLtMatmulDescCreate, int, (void**, int, int))                                            \
  X(cublasLtMatmulDescDestroy, int, (void*))                                                      \
  X(cublasLtMatmulDescSetAttribute, int, (void*, int, const void*, size_t))                       \
  X(cublasLtMatrixLayoutCreate, int, (void**, int, uint64_t, uint64_t, int64_t))                  \
  X(cublasLtMatrixLayoutDestroy, int, (void*))                                                    \
  X(cublasLtMatmulPreferenceCreate, int, (void**))                                                \
  X(cublasLtMatmulPreferenceDestroy, int, (void*))                                                \
  X(cublasLtMatmulPreferenceSetAttribute, int, (void*, int, const void*, size_t))                 \
  X(cublasLtMatmulAlgoGetHeuristic, int,                                                          \
    (void*, void*, void*, void*, void*, void*, void*, int, CublasLtChoice*, int*))                \
  X(cublasLtMatmul, int,                                                                          \
    (void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, \
     void*, void*, void*, const void*, void*, size_t, void*))

/// cuBLASLt's functions, all found. Plain data.
struct CublasLtFunctions {
#define STAGECOACH_CUBLASLT_MEMBER(name, result, parameters) result(*name) parameters = nullptr;
  STAGECOACH_CUBLASLT_FUNCTIONS(STAGECOACH_CUBLASLT_MEMBER)
#undef STAGECOACH_CUBLASLT_MEMBER
};

/// cuBLASLt's numbers that are passed to it.
struct CublasLtConstants {
  static constexpr int kSuccess = 0;
  static constexpr int kAllocFailed = 3;
  static constexpr int kInvalidValue = 7;
  static constexpr int kNotSupported = 15;
  static constexpr int kTypeFp32 = 0;
  static constexpr int kTypeFp16 = 2;
  static constexpr int kTypeBf16 = 14;
  static constexpr int kComputeFp16 = 64;
  static constexpr int kComputeFp32 = 68;
  static constexpr int kTransposeA = 3;
  static constexpr int kTransposeB = 4;
  static constexpr int kEpilogue = 7;
  static constexpr int kBiasPointer = 8;
  static constexpr int kBiasType = 26;
  static constexpr int kOperationTranspose = 1;
  static constexpr int kEpilogueBias = 4;
  static constexpr int kMaxWorkspace = 1;
  static constexpr int kReductionSchemes = 3;
  static constexpr int kAlignmentA = 5;  ///< then B, C and D
  static constexpr uint32_t kReductionInComputeType = 2;
};

/// Names under which cuBLASLt is looked for, newest first.
std::vector<std::string> cublaslt_library_names();

/// Opens the first of `names`. The error lists every name tried, or the function that is missing.
Result<CublasLtFunctions> load_cublaslt_functions(std::span<const std::string> names);

}  // namespace stagecoach
