#include "tests/kernels/fake_rocblas.h"

#include <cstdio>

#include "core/check.h"
#include "tests/kernels/fake_library_memory.h"

namespace stagecoach {

namespace {

using Constants = RocblasConstants;

DType dtype_of_type(int type) {
  if (type == Constants::kTypeBf16) return DType::kBF16;
  STAGECOACH_CHECK(type == Constants::kTypeFp16 || type == Constants::kTypeFp32);
  return type == Constants::kTypeFp16 ? DType::kF16 : DType::kF32;
}

int gemm(void*, int operation_a, int operation_b, int32_t m, int32_t n, int32_t k,
         const void* alpha, const void* a, int a_type, int32_t lda, const void* b, int b_type,
         int32_t ldb, const void* beta, const void* c, int c_type, int32_t ldc, void* d, int d_type,
         int32_t ldd, int compute_type, int algorithm, int32_t solution, uint32_t flags) {
  FakeRocblas& fake = fake_rocblas();
  if (fake.gemm_error != 0 && fake.gemm_error != Constants::kPerformanceDegraded) {
    return fake.gemm_error;
  }
  STAGECOACH_CHECK(c == d && c_type == d_type && ldc == ldd && a_type == b_type);
  STAGECOACH_CHECK(algorithm == 0 && solution == 0 && flags == 0 && !fake.allows_atomics);
  ++fake.products;
  if (compute_type == Constants::kTypeFp16) ++fake.fp16_products;
  const DType scale = dtype_of_type(compute_type), out = dtype_of_type(d_type);
  auto number = [](const void* data) { return static_cast<const std::byte*>(data); };
  const float factor = read_number(scale, number(alpha)), kept = read_number(scale, number(beta));
  auto element = [&](const void* data, int type, int32_t stride, int operation, int64_t row,
                     int64_t column) {
    if (operation == Constants::kOperationTranspose) std::swap(row, column);
    STAGECOACH_CHECK(row < stride);
    DType dtype = dtype_of_type(type);
    return read_number(dtype, number(data) + (column * stride + row) * dtype_size_bytes(dtype));
  };
  for (int64_t column = 0; column < n; ++column) {
    for (int64_t row = 0; row < m; ++row) {
      float sum = 0.0f;
      for (int64_t i = 0; i < k; ++i) {
        sum += element(a, a_type, lda, operation_a, row, i) *
               element(b, b_type, ldb, operation_b, i, column);
      }
      sum *= factor;
      std::byte* target = static_cast<std::byte*>(d) + (column * ldd + row) * dtype_size_bytes(out);
      if (kept != 0.0f) sum += kept * read_number(out, target);
      write_number(out, sum, target);
    }
  }
  return fake.gemm_error;
}

}  // namespace

FakeRocblas& fake_rocblas() {
  static FakeRocblas fake;
  return fake;
}

RocblasFunctions fake_rocblas_functions() {
  RocblasFunctions functions;
  functions.rocblas_status_to_string = [](int) { return "the fake was told to fail"; };
  functions.rocblas_get_version_string = [](char* text, size_t size) {
    std::snprintf(text, size, "4.3.0");
    return Constants::kSuccess;
  };
  functions.rocblas_create_handle = [](void** handle) {
    FakeRocblas& fake = fake_rocblas();
    if (fake.create_error != 0) return fake.create_error;
    *handle = &fake;
    ++fake.handles;
    return Constants::kSuccess;
  };
  functions.rocblas_destroy_handle = [](void*) {
    --fake_rocblas().handles;
    return Constants::kSuccess;
  };
  functions.rocblas_set_stream = [](void*, void*) { return Constants::kSuccess; };
  functions.rocblas_set_atomics_mode = [](void*, int mode) {
    fake_rocblas().allows_atomics = mode != Constants::kAtomicsNotAllowed;
    return Constants::kSuccess;
  };
  functions.rocblas_set_workspace = [](void*, void* memory, size_t size) {
    fake_rocblas().workspace_bytes = memory == nullptr ? 0 : size;
    return Constants::kSuccess;
  };
  functions.rocblas_gemm_ex = gemm;
  return functions;
}

}  // namespace stagecoach
