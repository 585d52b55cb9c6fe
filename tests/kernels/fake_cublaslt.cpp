#include "tests/kernels/fake_cublaslt.h"

#include "core/check.h"
#include "tests/kernels/fake_library_memory.h"

namespace stagecoach {

namespace {

using Constants = CublasLtConstants;
constexpr uint64_t kAlgorithm = 0x5ca1ab1e;
constexpr size_t kAlgorithmScratch = 1000;

struct Operation {
  int compute = 0, scale = 0;
  bool transpose[2] = {false, false};
  uint32_t epilogue = 1;
  int bias_type = 0;
  const std::byte* bias = nullptr;
};

struct Layout {
  int type = 0;
  int64_t rows = 0, columns = 0, stride = 0;
};

struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 7;
  uint32_t alignments[4] = {256, 256, 256, 256};
};

DType dtype_of_type(int type) {
  if (type == Constants::kTypeBf16) return DType::kBF16;
  return type == Constants::kTypeFp16 ? DType::kF16 : DType::kF32;
}

template <typename Object>
int make(void** handle, const Object& object) {
  *handle = new Object(object);
  ++fake_cublaslt().objects;
  return Constants::kSuccess;
}

template <typename Object>
int destroy(void* handle) {
  delete static_cast<Object*>(handle);
  --fake_cublaslt().objects;
  return Constants::kSuccess;
}

template <typename Value>
Value value_of(const void* data, size_t size) {
  STAGECOACH_CHECK(size == sizeof(Value));
  Value value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

int set_operation(void* handle, int attribute, const void* data, size_t size) {
  auto& operation = *static_cast<Operation*>(handle);
  switch (attribute) {
    case Constants::kTransposeA:
    case Constants::kTransposeB:
      operation.transpose[attribute - Constants::kTransposeA] =
          value_of<int32_t>(data, size) == Constants::kOperationTranspose;
      return Constants::kSuccess;
    case Constants::kEpilogue:
      operation.epilogue = value_of<uint32_t>(data, size);
      return Constants::kSuccess;
    case Constants::kBiasType:
      operation.bias_type = value_of<int32_t>(data, size);
      return Constants::kSuccess;
    case Constants::kBiasPointer:
      operation.bias = value_of<const std::byte*>(data, size);
      return Constants::kSuccess;
    default:
      return Constants::kInvalidValue;
  }
}

int set_preference(void* handle, int attribute, const void* data, size_t size) {
  auto& preference = *static_cast<Preference*>(handle);
  if (attribute == Constants::kMaxWorkspace) {
    preference.workspace = value_of<uint64_t>(data, size);
  } else if (attribute == Constants::kReductionSchemes) {
    preference.reductions = value_of<uint32_t>(data, size);
  } else {
    STAGECOACH_CHECK(attribute >= Constants::kAlignmentA && attribute < Constants::kAlignmentA + 4);
    preference.alignments[attribute - Constants::kAlignmentA] = value_of<uint32_t>(data, size);
  }
  return Constants::kSuccess;
}

bool has_aligned_rows(const Layout& layout) {
  return layout.stride * dtype_size_bytes(dtype_of_type(layout.type)) % 16 == 0;
}

int heuristic(void*, void*, void* a, void* b, void*, void* d, void* preference, int wanted,
              CublasLtChoice* choices, int* count) {
  FakeCublasLt& fake = fake_cublaslt();
  ++fake.heuristics;
  *count = 0;
  if (fake.heuristic_error != 0) return fake.heuristic_error;
  const auto& asked = *static_cast<Preference*>(preference);
  STAGECOACH_CHECK(asked.reductions == Constants::kReductionInComputeType && wanted >= 2);
  for (uint32_t alignment : asked.alignments) STAGECOACH_CHECK(alignment >= 2 && alignment <= 16);
  bool is_refused = fake.finds_nothing || static_cast<Layout*>(d)->rows == fake.refused_columns;
  for (void* layout : {a, b, d}) {
    is_refused =
        is_refused || (fake.needs_aligned_rows && !has_aligned_rows(*static_cast<Layout*>(layout)));
  }
  if (is_refused) return Constants::kNotSupported;
  // The first does not work on this card.
  choices[0].status = Constants::kNotSupported;
  choices[1].status = Constants::kSuccess;
  choices[1].algorithm[0] = kAlgorithm;
  choices[1].workspace_bytes = kAlgorithmScratch;
  STAGECOACH_CHECK(asked.workspace >= kAlgorithmScratch);
  *count = 2;
  return Constants::kSuccess;
}

/// Element (row, column) of op(matrix).
float element(const Layout& layout, bool transpose, const void* data, int64_t row, int64_t column) {
  if (transpose) std::swap(row, column);
  STAGECOACH_CHECK(row < layout.rows && column < layout.columns && layout.stride >= layout.rows);
  DType dtype = dtype_of_type(layout.type);
  return read_number(dtype, static_cast<const std::byte*>(data) +
                                (column * layout.stride + row) * dtype_size_bytes(dtype));
}

float factor(const Operation& operation, const void* data) {
  return read_number(dtype_of_type(operation.scale), static_cast<const std::byte*>(data));
}

int matmul(void*, void* operation_handle, const void* alpha, const void* a, void* a_handle,
           const void* b, void* b_handle, const void* beta, const void* c, void*, void* d,
           void* d_handle, const void* algorithm, void* workspace, size_t workspace_size, void*) {
  FakeCublasLt& fake = fake_cublaslt();
  if (fake.matmul_error != 0) return fake.matmul_error;
  const auto& operation = *static_cast<Operation*>(operation_handle);
  const auto& a_layout = *static_cast<Layout*>(a_handle);
  const auto& b_layout = *static_cast<Layout*>(b_handle);
  const auto& d_layout = *static_cast<Layout*>(d_handle);
  STAGECOACH_CHECK(*static_cast<const uint64_t*>(algorithm) == kAlgorithm);
  STAGECOACH_CHECK(workspace_size >= kAlgorithmScratch && c == d);
  std::memset(workspace, 0xff, kAlgorithmScratch);
  ++fake.products;
  if (operation.compute == Constants::kComputeFp16) ++fake.fp16_products;
  const bool has_bias = operation.epilogue == Constants::kEpilogueBias;
  DType out = dtype_of_type(d_layout.type);
  int64_t depth = operation.transpose[0] ? a_layout.rows : a_layout.columns;
  STAGECOACH_CHECK(depth == (operation.transpose[1] ? b_layout.columns : b_layout.rows));
  for (int64_t column = 0; column < d_layout.columns; ++column) {
    for (int64_t row = 0; row < d_layout.rows; ++row) {
      float sum = 0.0f;
      for (int64_t k = 0; k < depth; ++k) {
        sum += element(a_layout, operation.transpose[0], a, row, k) *
               element(b_layout, operation.transpose[1], b, k, column);
      }
      sum *= factor(operation, alpha);
      DType bias = dtype_of_type(operation.bias_type);
      if (has_bias) sum += read_number(bias, operation.bias + row * dtype_size_bytes(bias));
      std::byte* target =
          static_cast<std::byte*>(d) + (column * d_layout.stride + row) * dtype_size_bytes(out);
      float old_factor = factor(operation, beta);
      if (old_factor != 0.0f) sum += old_factor * read_number(out, target);
      write_number(out, sum, target);
    }
  }
  return Constants::kSuccess;
}

int create(void** handle) {
  FakeCublasLt& fake = fake_cublaslt();
  return fake.create_error != 0 ? fake.create_error : make(handle, 0);
}

const char* status_name(int) {
  return "CUBLAS_STATUS_FAKE";
}
const char* status_text(int) {
  return "the fake was told to fail";
}

}  // namespace

FakeCublasLt& fake_cublaslt() {
  static FakeCublasLt fake;
  return fake;
}

CublasLtFunctions fake_cublaslt_functions() {
  CublasLtFunctions functions;
  functions.cublasLtGetVersion = []() -> size_t { return 130204; };
  functions.cublasLtGetStatusName = status_name;
  functions.cublasLtGetStatusString = status_text;
  functions.cublasLtCreate = create;
  functions.cublasLtDestroy = destroy<int>;
  functions.cublasLtMatmulDescCreate = [](void** handle, int compute, int scale) {
    Operation operation;
    operation.compute = compute;
    operation.scale = scale;
    return make(handle, operation);
  };
  functions.cublasLtMatmulDescDestroy = destroy<Operation>;
  functions.cublasLtMatmulDescSetAttribute = set_operation;
  functions.cublasLtMatrixLayoutCreate = [](void** handle, int type, uint64_t rows,
                                            uint64_t columns, int64_t stride) {
    return make(handle,
                Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), stride});
  };
  functions.cublasLtMatrixLayoutDestroy = destroy<Layout>;
  functions.cublasLtMatmulPreferenceCreate = [](void** handle) {
    return make(handle, Preference());
  };
  functions.cublasLtMatmulPreferenceDestroy = destroy<Preference>;
  functions.cublasLtMatmulPreferenceSetAttribute = set_preference;
  functions.cublasLtMatmulAlgoGetHeuristic = heuristic;
  functions.cublasLtMatmul = matmul;
  return functions;
}

}  // namespace stagecoach
