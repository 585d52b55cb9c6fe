// AMD's rocBLAS as the HIP backend uses it, on a fake that computes on the host: the only proof so
// far (docs/hip_backend.md).
#if STAGECOACH_HIP

#include "backends/hip/hip_library.h"

#include <gtest/gtest.h>

#include "tests/kernels/fake_rocblas.h"
#include "tests/kernels/library_ops.h"

namespace stagecoach {
namespace {

testing::AssertionResult mentions(std::string_view text, std::string_view part) {
  if (text.find(part) != std::string_view::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is missing in: " << text;
}

class HipLibraryTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override { fake_rocblas() = FakeRocblas(); }
  void TearDown() override {
    library_.reset();
    EXPECT_EQ(fake_rocblas().handles, 0);
  }
  GpuLibrary& open(bool fp16_accumulate = false) {
    library_.reset();
    library_ = open_hip_library(fake_rocblas_functions(), {"hip:0", fp16_accumulate, false});
    return *library_;
  }
  static GpuProductShape product(int64_t m) {
    GpuProductShape shape;
    shape.m = m;
    shape.n = shape.k = shape.a_stride = shape.b_stride = shape.out_stride = 4;
    return shape;
  }

  std::unique_ptr<GpuLibrary> library_;
};

TEST_P(HipLibraryTest, AgreesWithTheOracle) {
  expect_library_as_oracle(GetParam(), open(), is_product);
  EXPECT_GT(fake_rocblas().products, 30);
  EXPECT_EQ(fake_rocblas().fp16_products, 0);
  EXPECT_GT(fake_rocblas().workspace_bytes, 0u);
}

TEST_P(HipLibraryTest, Fp16AccumulateIsForFp16ResultsAlone) {
  expect_library_as_oracle(GetParam(), open(true), is_product);
  EXPECT_EQ(fake_rocblas().fp16_products > 0, GetParam() == DType::kF16);
  EXPECT_LT(fake_rocblas().fp16_products, fake_rocblas().products);
}

INSTANTIATE_TEST_SUITE_P(Storage, HipLibraryTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

class HipLibraryFaults : public HipLibraryTest {};

TEST_F(HipLibraryFaults, ProvidersAndWhatIsNotServed) {
  GpuLibrary& library = open();
  EXPECT_EQ(library.provider(OpKind::kMatmul), "rocBLAS 4.3.0");
  EXPECT_EQ(library.provider(OpKind::kAttentionForward), "");
  EXPECT_TRUE(library.find_product(product(4)).value().has_value());
  EXPECT_FALSE(library.find_product(product(int64_t{1} << 31)).value().has_value());
  GpuProductShape with_bias = product(4);
  with_bias.has_bias = true;
  EXPECT_FALSE(library.find_product(with_bias).value().has_value());
  EXPECT_FALSE(library.find_attention({}).value().has_value());
}

TEST_F(HipLibraryFaults, MissingAndBrokenLibrariesAreSaid) {
  const std::vector<std::string> absent = {"libstagecoach_no_such.so.1"};
  const std::vector<std::string> other = {"libc.so.6"};
  auto missing = open_hip_library(load_rocblas_functions(absent), {"hip:0", false, false});
  EXPECT_TRUE(mentions(missing->provider(OpKind::kMatmul), absent.front()));
  EXPECT_FALSE(missing->find_product(product(4)).value().has_value());
  auto wrong = open_hip_library(load_rocblas_functions(other), {"hip:0", false, false});
  EXPECT_TRUE(mentions(wrong->provider(OpKind::kMatmul), "libc.so.6 has no function rocblas_"));
  fake_rocblas().create_error = 6;
  EXPECT_TRUE(mentions(open().provider(OpKind::kMatmul), "rocBLAS create: the fake was told"));
}

TEST_F(HipLibraryFaults, ErrorsNameFunctionAndShape) {
  GpuLibrary& library = open();
  fake_rocblas().gemm_error = 6;
  Status failed = library.run_product(product(4), {}, {});
  EXPECT_EQ(failed.code(), StatusCode::kInternal);
  EXPECT_TRUE(mentions(failed.message(), "fp32 [4, 4] x [4, 4] to fp32: rocBLAS gemm_ex: "));
  fake_rocblas().gemm_error = RocblasConstants::kMemoryError;
  EXPECT_EQ(library.run_product(product(4), {}, {}).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace stagecoach

#endif
