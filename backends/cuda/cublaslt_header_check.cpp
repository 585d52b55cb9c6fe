// Compares our declarations with the vendor's header; compiled only where that is found.
#include <cublasLt.h>

#include "backends/cuda/cublaslt_functions.h"

namespace stagecoach {

namespace {

using Ours = CublasLtConstants;

static_assert(sizeof(CublasLtChoice) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(sizeof(CublasLtChoice::algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(offsetof(CublasLtChoice, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(CublasLtChoice, status) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(sizeof(cublasStatus_t) == sizeof(int) && sizeof(cudaDataType) == sizeof(int));
static_assert(Ours::kSuccess == CUBLAS_STATUS_SUCCESS);
static_assert(Ours::kAllocFailed == CUBLAS_STATUS_ALLOC_FAILED);
static_assert(Ours::kInvalidValue == CUBLAS_STATUS_INVALID_VALUE);
static_assert(Ours::kNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(Ours::kTypeFp32 == CUDA_R_32F);
static_assert(Ours::kTypeFp16 == CUDA_R_16F);
static_assert(Ours::kTypeBf16 == CUDA_R_16BF);
static_assert(Ours::kComputeFp16 == CUBLAS_COMPUTE_16F);
static_assert(Ours::kComputeFp32 == CUBLAS_COMPUTE_32F);
static_assert(Ours::kTransposeA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(Ours::kTransposeB == CUBLASLT_MATMUL_DESC_TRANSB);
static_assert(Ours::kEpilogue == CUBLASLT_MATMUL_DESC_EPILOGUE);
static_assert(Ours::kBiasPointer == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
static_assert(Ours::kBiasType == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
static_assert(Ours::kOperationTranspose == CUBLAS_OP_T);
static_assert(Ours::kEpilogueBias == CUBLASLT_EPILOGUE_BIAS);
static_assert(Ours::kMaxWorkspace == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(Ours::kReductionSchemes == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
static_assert(Ours::kAlignmentA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(Ours::kAlignmentA + 1 == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
static_assert(Ours::kAlignmentA + 2 == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(Ours::kAlignmentA + 3 == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(Ours::kReductionInComputeType == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);

}  // namespace

}  // namespace stagecoach
