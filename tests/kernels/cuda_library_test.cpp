// NVIDIA's libraries as the GPU backends use them, on fakes that compute on the host.
#if STAGECOACH_CUDA

#include "backends/cuda/cuda_library.h"

#include <gtest/gtest.h>

#include "tests/kernels/fake_cublaslt.h"
#include "tests/kernels/fake_cudnn.h"
#include "tests/kernels/library_ops.h"

namespace stagecoach {
namespace {

testing::AssertionResult mentions(std::string_view text, std::string_view part) {
  if (text.find(part) != std::string_view::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is missing in: " << text;
}

/// Opens the libraries on the fakes.
class CudaLibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_cublaslt() = FakeCublasLt();
    fake_cudnn() = FakeCudnn();
  }
  void TearDown() override {
    library_.reset();
    EXPECT_EQ(fake_cublaslt().objects, 0);
    EXPECT_EQ(fake_cudnn().objects, 0);
  }

  static CudaLibraryFunctions fakes() {
    return {fake_cublaslt_functions(), fake_cudnn_functions()};
  }
  GpuLibrary& open(bool fp16_accumulate = false, bool is_deterministic = false) {
    library_.reset();
    library_ = open_cuda_library(fakes(), {"cuda:0", fp16_accumulate, is_deterministic});
    return *library_;
  }
  static GpuProductShape product(DType dtype, int64_t m, int64_t n, int64_t k) {
    GpuProductShape shape;
    shape.dtype = shape.out_dtype = dtype;
    shape.m = m;
    shape.n = shape.out_stride = shape.b_stride = n;
    shape.k = shape.a_stride = k;
    return shape;
  }
  static GpuAttentionShape attention(bool is_backward) {
    GpuAttentionShape shape;
    shape.is_backward = is_backward;
    shape.dtype = DType::kBF16;
    shape.batch = 4;
    shape.sequence = 32;
    shape.heads = 8;
    shape.kv_heads = 4;
    shape.head_dim = 64;
    return shape;
  }

  std::unique_ptr<GpuLibrary> library_;
};

class CudaLibraryOps : public CudaLibraryTest, public testing::WithParamInterface<DType> {};

TEST_P(CudaLibraryOps, AgreeWithTheOracle) {
  expect_library_as_oracle(GetParam(), open(), library_might_serve);
  EXPECT_GT(fake_cublaslt().products, 50);
  EXPECT_EQ(fake_cublaslt().fp16_products, 0);
  EXPECT_EQ(fake_cudnn().executions > 0, GetParam() != DType::kF32);
}

TEST_P(CudaLibraryOps, BitExactWaysAgreeWithTheOracle) {
  expect_library_as_oracle(GetParam(), open(false, true), is_attention);
  EXPECT_EQ(fake_cudnn().executions > 0, GetParam() != DType::kF32);
}

TEST_P(CudaLibraryOps, WhatCublasLtRefusesOwnKernelsCompute) {
  fake_cublaslt().needs_aligned_rows = true;
  expect_library_as_oracle(GetParam(), open(), is_product);
  EXPECT_GT(fake_cublaslt().products, 0);
}

INSTANTIATE_TEST_SUITE_P(Storage, CudaLibraryOps,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

TEST_F(CudaLibraryTest, Fp16AccumulateIsForFp16ResultsAlone) {
  GpuLibrary& library = open(true);
  expect_library_as_oracle(DType::kF16, library, is_product);
  EXPECT_GT(fake_cublaslt().fp16_products, 0);
  EXPECT_LT(fake_cublaslt().fp16_products, fake_cublaslt().products) << "fp32 results are not";
  EXPECT_TRUE(mentions(library.provider(OpKind::kMatmul), "fp16 summed in fp16"));
  int64_t before = fake_cublaslt().fp16_products;
  expect_library_as_oracle(DType::kBF16, library, is_product);
  expect_library_as_oracle(DType::kF32, library, is_product);
  EXPECT_EQ(fake_cublaslt().fp16_products, before);
}

TEST_F(CudaLibraryTest, AShapeIsAskedForOnce) {
  GpuLibrary& library = open();
  GpuProductShape first = product(DType::kBF16, 8, 16, 32);
  for (int i = 0; i < 3; ++i) {
    auto found = library.find_product(first);
    ASSERT_TRUE(found.is_ok());
    EXPECT_EQ(*found, GpuLibraryRequest::kProductScratch);
  }
  EXPECT_EQ(fake_cublaslt().heuristics, 1);
  GpuProductShape other = first;
  other.a_alignment = 2;
  ASSERT_TRUE(library.find_product(other).is_ok());
  EXPECT_EQ(fake_cublaslt().heuristics, 2);
  for (int i = 0; i < 3; ++i) {
    auto found = library.find_attention(attention(false));
    ASSERT_TRUE(found.is_ok() && found->has_value());
  }
  int64_t asked = fake_cudnn().heuristics;
  ASSERT_TRUE(library.find_attention(attention(false)).is_ok());
  EXPECT_EQ(fake_cudnn().heuristics, asked);
}

TEST_F(CudaLibraryTest, MoreShapesThanTheCacheHolds) {
  GpuLibrary& library = open();
  for (int64_t k = 1; k <= static_cast<int64_t>(CublasLt::kMostShapes) + 10; ++k) {
    ASSERT_TRUE(library.find_product(product(DType::kF32, 1, 1, k)).is_ok());
  }
  // A handle, and three layouts and a description for each shape.
  EXPECT_EQ(fake_cublaslt().objects, 1 + 4 * static_cast<int64_t>(CublasLt::kMostShapes));
  int64_t asked = fake_cublaslt().heuristics;
  ASSERT_TRUE(library.find_product(product(DType::kF32, 1, 1, 1)).is_ok());
  EXPECT_EQ(fake_cublaslt().heuristics, asked + 1) << "the oldest went";
}

TEST_F(CudaLibraryTest, BitExactAttentionIsSplitUntilItsScratchIsBounded) {
  for (int64_t bytes_a_score : {int64_t{3'000}, int64_t{30'000}, int64_t{80'000}}) {
    fake_cudnn().workspace_bytes_a_score = bytes_a_score;
    GpuLibrary& library = open(false, true);
    auto found = library.find_attention(attention(true));
    ASSERT_TRUE(found.is_ok() && found->has_value());
    EXPECT_LE(**found, GpuLibraryRequest::kAttentionScratch);
  }
  fake_cudnn().workspace_bytes_a_score = 1'000'000'000;
  auto none = open(false, true).find_attention(attention(true));
  ASSERT_TRUE(none.is_ok());
  EXPECT_FALSE(none->has_value());
  // What is summed in any order needs no such scratch.
  auto faster = open(false, false).find_attention(attention(true));
  ASSERT_TRUE(faster.is_ok());
  EXPECT_TRUE(faster->has_value());
}

TEST_F(CudaLibraryTest, SplitAttentionAgreesWithTheOracle) {
  for (int64_t bytes_a_score : {int64_t{50'000}, int64_t{400'000}, int64_t{1'000'000}}) {
    fake_cudnn().workspace_bytes_a_score = bytes_a_score;
    expect_library_as_oracle(DType::kBF16, open(false, true), is_attention);
  }
}

TEST_F(CudaLibraryTest, EnginesThatNoteRandomBitsAreNotBitExact) {
  fake_cudnn().notes_random_bits = true;
  auto exact = open(false, true).find_attention(attention(true));
  ASSERT_TRUE(exact.is_ok());
  EXPECT_FALSE(exact->has_value());
  auto any = open(false, false).find_attention(attention(true));
  ASSERT_TRUE(any.is_ok());
  EXPECT_TRUE(any->has_value());
}

TEST_F(CudaLibraryTest, WhatCudnnDoesNotServeIsTheCallersToCompute) {
  struct Case {
    void (*change)(GpuAttentionShape& shape);
  };
  constexpr Case kCases[] = {
      {[](GpuAttentionShape& shape) { shape.dtype = DType::kF32; }},
      {[](GpuAttentionShape& shape) { shape.head_dim = 20; }},
      {[](GpuAttentionShape& shape) { shape.is_aligned = false; }},
      {[](GpuAttentionShape& shape) { shape.sequence = 1; }},
  };
  for (const Case& one : kCases) {
    GpuAttentionShape shape = attention(true);
    one.change(shape);
    auto found = open().find_attention(shape);
    ASSERT_TRUE(found.is_ok());
    EXPECT_FALSE(found->has_value()) << describe(shape);
    EXPECT_EQ(fake_cudnn().heuristics, 0);
  }
  fake_cudnn().version = 91200;
  auto old = open().find_attention(attention(true));
  ASSERT_TRUE(old.is_ok());
  EXPECT_FALSE(old->has_value()) << "needs padding up to 9.15";
  EXPECT_TRUE(open().find_attention(attention(false)).value().has_value());
  fake_cudnn().finds_nothing = true;
  EXPECT_FALSE(open().find_attention(attention(false)).value().has_value());
  fake_cudnn().finds_nothing = false;
  fake_cudnn().finalize_error = 3001;
  EXPECT_FALSE(open().find_attention(attention(false)).value().has_value());
}

TEST_F(CudaLibraryTest, ProvidersNameLibraryAndVersion) {
  GpuLibrary& library = open();
  EXPECT_EQ(library.provider(OpKind::kMatmul), "cuBLASLt 13.2.4");
  EXPECT_EQ(library.provider(OpKind::kLinearCrossEntropyForward),
            "cuBLASLt 13.2.4 for its products, own kernels");
  EXPECT_TRUE(mentions(library.provider(OpKind::kAttentionForward), "cuDNN 9.19.0"));
  EXPECT_TRUE(mentions(library.provider(OpKind::kAttentionBackward), "sums in any order"));
  EXPECT_EQ(library.provider(OpKind::kGeluForward), "");
  EXPECT_TRUE(mentions(open(false, true).provider(OpKind::kAttentionBackward), "bit-exact"));
}

TEST_F(CudaLibraryTest, MissingLibrariesAreNamedAndOwnKernelsServe) {
  const std::vector<std::string> absent = {"libstagecoach_no_such.so.1", "libstagecoach_none.so"};
  const std::vector<std::string> other = {"libc.so.6"};
  CudaLibraryFunctions functions = {load_cublaslt_functions(absent), load_cudnn_functions(other)};
  auto library = open_cuda_library(functions, {"cuda:0", false, false});
  std::string products = library->provider(OpKind::kMatmul);
  for (const std::string& name : absent) EXPECT_TRUE(mentions(products, name));
  EXPECT_TRUE(mentions(products, "own kernels (no usable cuBLASLt"));
  std::string attention_text = library->provider(OpKind::kAttentionBackward);
  EXPECT_TRUE(mentions(attention_text, "libc.so.6 has no function cudnn"));
  EXPECT_FALSE(library->find_product(product(DType::kF32, 1, 1, 1)).value().has_value());
  EXPECT_FALSE(library->find_attention(attention(false)).value().has_value());
}

TEST_F(CudaLibraryTest, LibrariesThatDoNotStartAreSaid) {
  fake_cublaslt().create_error = 1;
  fake_cudnn().create_error = 1001;
  GpuLibrary& library = open();
  EXPECT_TRUE(mentions(library.provider(OpKind::kMatmul),
                       "cuBLASLt create: CUBLAS_STATUS_FAKE (1): the fake was told to fail"));
  EXPECT_TRUE(mentions(library.provider(OpKind::kAttentionForward),
                       "cuDNN create: CUDNN_STATUS_FAKE (1001): the fake was told to fail"));
  fake_cublaslt().create_error = 0;
  fake_cudnn().create_error = 0;
  fake_cudnn().version = 90800;
  EXPECT_TRUE(mentions(open().provider(OpKind::kAttentionForward), "9.8.0 is older than 9.10.2"));
}

TEST_F(CudaLibraryTest, ErrorsNameFunctionShapeAndCause) {
  GpuLibrary& library = open();
  GpuProductShape shape = product(DType::kBF16, 8, 16, 32);
  fake_cublaslt().heuristic_error = 14;
  Status asked = library.find_product(shape).status();
  EXPECT_EQ(asked.code(), StatusCode::kInternal);
  EXPECT_TRUE(mentions(asked.message(), "bf16 [8, 32] x [32, 16] to bf16: cuBLASLt heuristic: "));
  fake_cublaslt().heuristic_error = 3;
  EXPECT_EQ(library.find_product(shape).status().code(), StatusCode::kResourceExhausted);
  fake_cublaslt().heuristic_error = 0;
  ASSERT_TRUE(library.find_product(shape).is_ok()) << "a failure is not remembered";
  fake_cublaslt().matmul_error = 13;
  Status ran = library.run_product(shape, {}, {});
  EXPECT_EQ(ran.code(), StatusCode::kInternal);
  EXPECT_TRUE(mentions(ran.message(), "cuBLASLt matmul: CUBLAS_STATUS_FAKE (13)"));
  fake_cudnn().finalize_error = 4000;
  Status built = library.find_attention(attention(true)).status();
  EXPECT_EQ(built.code(), StatusCode::kInternal);
  EXPECT_TRUE(mentions(built.message(), "8 heads over 4, 64 wide: cuDNN operation graph: "));
  fake_cudnn().finalize_error = 0;
  ASSERT_TRUE(library.find_attention(attention(true)).is_ok());
  fake_cudnn().execute_error = 5000;
  Status executed = library.run_attention(attention(true), {}, {});
  EXPECT_EQ(executed.code(), StatusCode::kInternal);
  EXPECT_TRUE(mentions(executed.message(), "cuDNN attention: CUDNN_STATUS_FAKE (5000)"));
}

}  // namespace
}  // namespace stagecoach

#endif
