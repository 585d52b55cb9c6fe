#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"

namespace stagecoach {

// The functions of cuDNN's graph API that are called: symbol, result, parameters. Statuses and
// enumerations are ints, descriptors void*; cudnn_header_check.cpp compares with the real header.
#define STAGECOACH_CUDNN_FUNCTIONS(X)                                           \
  X(cudnnGetVersion, size_t, ())                                                \
  X(cudnnGetErrorString, const char*, (int))                                    \
  X(cudnnGetLastErrorString, void, (char*, size_t))                             \
  X(cudnnCreate, int, (void**))                                                 \
  X(cudnnDestroy, int, (void*))                                                 \
  X(cudnnSetStream, int, (void*, void*))                                        \
  X(cudnnBackendCreateDescriptor, int, (int, void**))                           \
  X(cudnnBackendDestroyDescriptor, int, (void*))                                \
  X(cudnnBackendFinalize, int, (void*))                                         \
  X(cudnnBackendSetAttribute, int, (void*, int, int, int64_t, const void*))     \
  X(cudnnBackendGetAttribute, int, (void*, int, int, int64_t, int64_t*, void*)) \
  X(cudnnBackendExecute, int, (void*, void*, void*))

/// cuDNN's functions, all found. Plain data.
struct CudnnFunctions {
#define STAGECOACH_CUDNN_MEMBER(name, result, parameters) result(*name) parameters = nullptr;
  STAGECOACH_CUDNN_FUNCTIONS(STAGECOACH_CUDNN_MEMBER)
#undef STAGECOACH_CUDNN_MEMBER
};

/// Kinds of descriptor.
struct CudnnDescriptorKind {
  static constexpr int kPointwise = 0;
  static constexpr int kEngine = 2;
  static constexpr int kEngineConfig = 3;
  static constexpr int kEngineHeuristic = 4;
  static constexpr int kExecutionPlan = 5;
  static constexpr int kPointwiseOperation = 13;
  static constexpr int kOperationGraph = 15;
  static constexpr int kVariantPack = 16;
  static constexpr int kTensor = 17;
  static constexpr int kMatmul = 18;
  static constexpr int kMatmulOperation = 19;
  static constexpr int kReduction = 21;
  static constexpr int kReductionOperation = 22;
  static constexpr int kReshapeOperation = 31;
};

/// Types of attributes.
struct CudnnType {
  static constexpr int kHandle = 0;
  static constexpr int kDataType = 1;
  static constexpr int kBoolean = 2;
  static constexpr int kInt64 = 3;
  static constexpr int kPointer = 6;
  static constexpr int kHeuristicMode = 8;
  static constexpr int kNumericalNote = 11;
  static constexpr int kPointwiseMode = 14;
  static constexpr int kDescriptor = 15;
  static constexpr int kReductionOperator = 18;
};

/// Names of attributes.
struct CudnnAttribute {
  static constexpr int kPointwiseMode = 0;
  static constexpr int kPointwiseMath = 1;
  static constexpr int kPointwiseAxis = 9;
  static constexpr int kHeuristicMode = 200;
  static constexpr int kHeuristicGraph = 201;
  static constexpr int kHeuristicResults = 202;
  static constexpr int kConfigEngine = 300;
  static constexpr int kPlanHandle = 400;
  static constexpr int kPlanConfig = 401;
  static constexpr int kPlanWorkspaceSize = 402;
  static constexpr int kPointwiseDescriptor = 750;
  static constexpr int kPointwiseX = 751;
  static constexpr int kPointwiseB = 752;
  static constexpr int kPointwiseY = 753;
  static constexpr int kPointwiseT = 758;
  static constexpr int kGraphHandle = 800;
  static constexpr int kGraphOperations = 801;
  static constexpr int kTensorAlignment = 900;
  static constexpr int kTensorDataType = 901;
  static constexpr int kTensorDimensions = 902;
  static constexpr int kTensorStrides = 903;
  static constexpr int kTensorId = 906;
  static constexpr int kTensorIsVirtual = 907;
  static constexpr int kTensorIsByValue = 908;
  static constexpr int kPackIds = 1000;
  static constexpr int kPackPointers = 1001;
  static constexpr int kPackWorkspace = 1003;
  static constexpr int kEngineNumericalNote = 1303;
  static constexpr int kMatmulMath = 1500;
  static constexpr int kMatmulA = 1520;
  static constexpr int kMatmulB = 1521;
  static constexpr int kMatmulC = 1522;
  static constexpr int kMatmulDescriptor = 1523;
  static constexpr int kReductionOperator = 1600;
  static constexpr int kReductionMath = 1601;
  static constexpr int kReductionX = 1610;
  static constexpr int kReductionY = 1611;
  static constexpr int kReductionDescriptor = 1612;
  static constexpr int kReshapeX = 2200;
  static constexpr int kReshapeY = 2201;
};

/// Values of attributes.
struct CudnnValue {
  static constexpr int kFloat = 0;
  static constexpr int kHalf = 2;
  static constexpr int kInt32 = 4;
  static constexpr int kBfloat16 = 9;
  static constexpr int kBoolean = 11;
  static constexpr int kAdd = 0;
  static constexpr int kMul = 1;
  static constexpr int kDiv = 6;
  static constexpr int kSub = 9;
  static constexpr int kExp = 13;
  static constexpr int kLog = 15;
  static constexpr int kIdentity = 21;
  static constexpr int kCompareGe = 303;
  static constexpr int kGenIndex = 501;
  static constexpr int kBinarySelect = 601;
  static constexpr int kReduceAdd = 0;
  static constexpr int kReduceMax = 3;
  static constexpr int kHeuristicA = 3;
  static constexpr int kHeuristicFallback = 2;
  static constexpr int kNoteNonDeterministic = 4;
};

/// Statuses: 0 is success; the thousands digit is the category.
struct CudnnStatus {
  static constexpr int kSuccess = 0;
  static constexpr int kNotSupported = 3000;
  static bool is_not_supported(int status) { return status / 1000 * 1000 == kNotSupported; }
};

/// Names under which cuDNN is looked for.
std::vector<std::string> cudnn_library_names();

/// Opens the first of `names`. The error lists every name tried, or the function that is missing.
Result<CudnnFunctions> load_cudnn_functions(std::span<const std::string> names);

}  // namespace stagecoach
