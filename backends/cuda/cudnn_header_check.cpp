// Compares our constants with the vendor's header; compiled only where that is found.
#include <cudnn_graph.h>

#include "backends/cuda/cudnn_functions.h"

namespace stagecoach {

namespace {

using Kind = CudnnDescriptorKind;
using Type = CudnnType;
using Attribute = CudnnAttribute;
using Value = CudnnValue;
using State = CudnnStatus;

static_assert(Kind::kPointwise == CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
static_assert(Kind::kEngine == CUDNN_BACKEND_ENGINE_DESCRIPTOR);
static_assert(Kind::kEngineConfig == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
static_assert(Kind::kEngineHeuristic == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
static_assert(Kind::kExecutionPlan == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
static_assert(Kind::kPointwiseOperation == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
static_assert(Kind::kOperationGraph == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
static_assert(Kind::kVariantPack == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
static_assert(Kind::kTensor == CUDNN_BACKEND_TENSOR_DESCRIPTOR);
static_assert(Kind::kMatmul == CUDNN_BACKEND_MATMUL_DESCRIPTOR);
static_assert(Kind::kMatmulOperation == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
static_assert(Kind::kReduction == CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
static_assert(Kind::kReductionOperation == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
static_assert(Kind::kReshapeOperation == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

static_assert(Type::kHandle == CUDNN_TYPE_HANDLE);
static_assert(Type::kDataType == CUDNN_TYPE_DATA_TYPE);
static_assert(Type::kBoolean == CUDNN_TYPE_BOOLEAN);
static_assert(Type::kInt64 == CUDNN_TYPE_INT64);
static_assert(Type::kPointer == CUDNN_TYPE_VOID_PTR);
static_assert(Type::kHeuristicMode == CUDNN_TYPE_HEUR_MODE);
static_assert(Type::kNumericalNote == CUDNN_TYPE_NUMERICAL_NOTE);
static_assert(Type::kPointwiseMode == CUDNN_TYPE_POINTWISE_MODE);
static_assert(Type::kDescriptor == CUDNN_TYPE_BACKEND_DESCRIPTOR);
static_assert(Type::kReductionOperator == CUDNN_TYPE_REDUCTION_OPERATOR_TYPE);

static_assert(Attribute::kPointwiseMode == CUDNN_ATTR_POINTWISE_MODE);
static_assert(Attribute::kPointwiseMath == CUDNN_ATTR_POINTWISE_MATH_PREC);
static_assert(Attribute::kPointwiseAxis == CUDNN_ATTR_POINTWISE_AXIS);
static_assert(Attribute::kHeuristicMode == CUDNN_ATTR_ENGINEHEUR_MODE);
static_assert(Attribute::kHeuristicGraph == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
static_assert(Attribute::kHeuristicResults == CUDNN_ATTR_ENGINEHEUR_RESULTS);
static_assert(Attribute::kConfigEngine == CUDNN_ATTR_ENGINECFG_ENGINE);
static_assert(Attribute::kPlanHandle == CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
static_assert(Attribute::kPlanConfig == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
static_assert(Attribute::kPlanWorkspaceSize == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
static_assert(Attribute::kPointwiseDescriptor == CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
static_assert(Attribute::kPointwiseX == CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
static_assert(Attribute::kPointwiseB == CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
static_assert(Attribute::kPointwiseY == CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
static_assert(Attribute::kPointwiseT == CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
static_assert(Attribute::kGraphHandle == CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
static_assert(Attribute::kGraphOperations == CUDNN_ATTR_OPERATIONGRAPH_OPS);
static_assert(Attribute::kTensorAlignment == CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
static_assert(Attribute::kTensorDataType == CUDNN_ATTR_TENSOR_DATA_TYPE);
static_assert(Attribute::kTensorDimensions == CUDNN_ATTR_TENSOR_DIMENSIONS);
static_assert(Attribute::kTensorStrides == CUDNN_ATTR_TENSOR_STRIDES);
static_assert(Attribute::kTensorId == CUDNN_ATTR_TENSOR_UNIQUE_ID);
static_assert(Attribute::kTensorIsVirtual == CUDNN_ATTR_TENSOR_IS_VIRTUAL);
static_assert(Attribute::kTensorIsByValue == CUDNN_ATTR_TENSOR_IS_BY_VALUE);
static_assert(Attribute::kPackIds == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
static_assert(Attribute::kPackPointers == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
static_assert(Attribute::kPackWorkspace == CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
static_assert(Attribute::kEngineNumericalNote == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
static_assert(Attribute::kMatmulMath == CUDNN_ATTR_MATMUL_COMP_TYPE);
static_assert(Attribute::kMatmulA == CUDNN_ATTR_OPERATION_MATMUL_ADESC);
static_assert(Attribute::kMatmulB == CUDNN_ATTR_OPERATION_MATMUL_BDESC);
static_assert(Attribute::kMatmulC == CUDNN_ATTR_OPERATION_MATMUL_CDESC);
static_assert(Attribute::kMatmulDescriptor == CUDNN_ATTR_OPERATION_MATMUL_DESC);
static_assert(Attribute::kReductionOperator == CUDNN_ATTR_REDUCTION_OPERATOR);
static_assert(Attribute::kReductionMath == CUDNN_ATTR_REDUCTION_COMP_TYPE);
static_assert(Attribute::kReductionX == CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
static_assert(Attribute::kReductionY == CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
static_assert(Attribute::kReductionDescriptor == CUDNN_ATTR_OPERATION_REDUCTION_DESC);
static_assert(Attribute::kReshapeX == CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
static_assert(Attribute::kReshapeY == CUDNN_ATTR_OPERATION_RESHAPE_YDESC);

static_assert(Value::kFloat == CUDNN_DATA_FLOAT);
static_assert(Value::kHalf == CUDNN_DATA_HALF);
static_assert(Value::kInt32 == CUDNN_DATA_INT32);
static_assert(Value::kBfloat16 == CUDNN_DATA_BFLOAT16);
static_assert(Value::kBoolean == CUDNN_DATA_BOOLEAN);
static_assert(Value::kAdd == CUDNN_POINTWISE_ADD);
static_assert(Value::kMul == CUDNN_POINTWISE_MUL);
static_assert(Value::kDiv == CUDNN_POINTWISE_DIV);
static_assert(Value::kSub == CUDNN_POINTWISE_SUB);
static_assert(Value::kExp == CUDNN_POINTWISE_EXP);
static_assert(Value::kLog == CUDNN_POINTWISE_LOG);
static_assert(Value::kIdentity == CUDNN_POINTWISE_IDENTITY);
static_assert(Value::kCompareGe == CUDNN_POINTWISE_CMP_GE);
static_assert(Value::kGenIndex == CUDNN_POINTWISE_GEN_INDEX);
static_assert(Value::kBinarySelect == CUDNN_POINTWISE_BINARY_SELECT);
static_assert(Value::kReduceAdd == CUDNN_REDUCE_TENSOR_ADD);
static_assert(Value::kReduceMax == CUDNN_REDUCE_TENSOR_MAX);
static_assert(Value::kHeuristicA == CUDNN_HEUR_MODE_A);
static_assert(Value::kHeuristicFallback == CUDNN_HEUR_MODE_FALLBACK);
static_assert(Value::kNoteNonDeterministic == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);

static_assert(State::kSuccess == CUDNN_STATUS_SUCCESS);
static_assert(State::kNotSupported == CUDNN_STATUS_NOT_SUPPORTED);

}  // namespace

}  // namespace stagecoach
