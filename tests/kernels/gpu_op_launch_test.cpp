#include "backends/gpu/gpu_op_launch.h"

#include <bit>
#include <gtest/gtest.h>
#include <limits>

#include "backends/cpu/cpu_backend.h"
#include "tests/kernels/emulated_kernels.h"
#include "tests/kernels/op_case.h"

namespace stagecoach {
namespace {

/// Tensors of any size over one small piece of memory: planning reads addresses only.
class GpuOpLaunchTest : public testing::Test {
 protected:
  void SetUp() override {
    DeviceSpec spec;
    spec.backend = "cpu";
    spec.which = "1";
    spec.text = "cpu:1";
    device_ = std::move(make_cpu_backend()->open(spec).value().front());
    buffer_ = std::move(device_->allocate(256, "small").buffer);
    arch_.shared_bytes = 99 * 1024;
  }

  TensorView tensor(DType dtype, const Shape& shape) {
    return TensorView{buffer_->view(), dtype, shape};
  }
  static OpCall call_of(OpKind kind, std::initializer_list<TensorView> outputs,
                        std::initializer_list<TensorView> inputs) {
    OpCall call;
    call.kind = kind;
    std::copy(outputs.begin(), outputs.end(), call.outputs.begin());
    std::copy(inputs.begin(), inputs.end(), call.inputs.begin());
    return call;
  }
  GpuLaunchPlan plan(const OpCall& call) {
    Result<GpuLaunchPlan> result = plan_op(call, arch_);
    EXPECT_TRUE(result.is_ok()) << result.status().to_string();
    return result.is_ok() ? *result : GpuLaunchPlan();
  }
  /// What every launch must keep to on any card.
  static void expect_launchable(const GpuLaunchPlan& plan) {
    EXPECT_GE(plan.launch_count, 1);
    EXPECT_GE(plan.rounds, 1);
    for (int i = 0; i < plan.launch_count; ++i) {
      const GpuKernelLaunch& launch = plan.launches[static_cast<size_t>(i)];
      SCOPED_TRACE(launch.kernel);
      const auto* kernel = emulation::find_emulated_kernel(launch.kernel);
      ASSERT_NE(kernel, nullptr);
      EXPECT_EQ(kernel->argument_count, launch.argument_count);
      EXPECT_GE(launch.grid[0], 1u);
      EXPECT_LE(launch.grid[0], 2147483647u);
      EXPECT_GE(launch.grid[1], 1u);
      EXPECT_LE(launch.grid[1], 65535u);
      EXPECT_GE(launch.block[0], 32u);
      EXPECT_LE(launch.block[0], 1024u);
      EXPECT_LE(launch.shared_bytes, 99u * 1024u);
    }
  }

  std::unique_ptr<Device> device_;
  BufferHandle buffer_;
  GpuArch arch_;
};

constexpr int64_t kHuge = int64_t{5} << 30;  // more elements than 32 bits count

TEST_F(GpuOpLaunchTest, EveryKindHasLaunchableKernels) {
  CaseMaker maker(3);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const auto& make : op_cases(dtype, false)) {
      OpCase test = make(maker);
      OpCall call = test.call;
      for (size_t i = 0; i < test.outputs.size(); ++i) {
        const HostTensor& host = test.outputs[i];
        if (!host.is_none()) call.outputs[i] = tensor(host.dtype, host.shape);
      }
      for (size_t i = 0; i < test.inputs.size(); ++i) {
        const HostTensor& host = test.inputs[i];
        if (!host.is_none()) call.inputs[i] = tensor(host.dtype, host.shape);
      }
      SCOPED_TRACE(op_kind_name(call.kind));
      expect_launchable(plan(call));
    }
  }
}

TEST_F(GpuOpLaunchTest, MoreElementsThan32BitsCount) {
  TensorView row = tensor(DType::kBF16, {kHuge});
  TensorView wide = tensor(DType::kF32, {kHuge});
  for (const OpCall& call :
       {call_of(OpKind::kAdd, {row}, {row, row}), call_of(OpKind::kConvert, {wide}, {row}),
        call_of(OpKind::kSumOfSquares, {tensor(DType::kF64, {1})}, {row}),
        call_of(OpKind::kFiniteCheck, {tensor(DType::kU64, {1})}, {row}),
        call_of(OpKind::kAdamW, {wide, wide, wide}, {row}),
        call_of(OpKind::kChecksum, {tensor(DType::kU64, {1})}, {wide})}) {
    SCOPED_TRACE(op_kind_name(call.kind));
    GpuLaunchPlan result = plan(call);
    expect_launchable(result);
    EXPECT_LE(result.workspace_bytes, ByteCount{16} << 20);
    // The count reaches the kernel whole.
    bool found = false;
    for (uint64_t word : result.launches[0].arguments) {
      found = found || word == static_cast<uint64_t>(kHuge);
    }
    EXPECT_TRUE(found);
  }
}

TEST_F(GpuOpLaunchTest, ManyRows) {
  constexpr int64_t kRows = int64_t{3} << 31;
  TensorView matrix = tensor(DType::kBF16, {kRows, 1});
  TensorView rows = tensor(DType::kF32, {kRows});
  OpCall norm =
      call_of(OpKind::kLayerNormForward, {matrix, rows, rows}, {matrix, tensor(DType::kBF16, {1})});
  expect_launchable(plan(norm));
  expect_launchable(plan(call_of(OpKind::kColumnSum, {tensor(DType::kF32, {1})}, {matrix})));
}

TEST_F(GpuOpLaunchTest, LogitsExistForAsFewRowsAsScratchHolds) {
  for (auto [vocabulary, scratch] : {std::pair<int64_t, ByteCount>{50257, 768 * kMiB},
                                     {50257, 384 * kMiB},
                                     {50257, 8 * kMiB},
                                     {151936, 768 * kMiB},
                                     {151936, 128 * kMiB},
                                     {4000000, 768 * kMiB}}) {
    arch_.scratch_bytes = scratch;
    for (int64_t rows : {1, 8192, 1000000}) {
      TensorView hidden = tensor(DType::kBF16, {rows, 2048});
      TensorView weight = tensor(DType::kBF16, {vocabulary, 2048});
      TensorView labels = tensor(DType::kI32, {rows});
      TensorView lse = tensor(DType::kF32, {rows});
      OpCall call =
          call_of(OpKind::kLinearCrossEntropyBackwardWeight,
                  {tensor(DType::kF32, {vocabulary, 2048})}, {hidden, weight, labels, lse});
      GpuLaunchPlan result = plan(call);
      expect_launchable(result);
      EXPECT_LE(result.workspace_bytes, scratch / 3 * 2 + 4096) << vocabulary << ", " << rows;
      // Not so few that the card has nothing to do: whole tiles where they fit.
      if (rows > 1) {
        EXPECT_GE(result.workspace_bytes, scratch / 3) << vocabulary << ", " << rows;
      }
      // Together the rounds reach every row, and the last is not empty.
      const GpuKernelLaunch& logits = result.launches[1];
      int64_t chunk = static_cast<int64_t>(logits.arguments[10]);
      EXPECT_EQ(static_cast<int64_t>(logits.arguments[7]), rows);
      EXPECT_EQ(logits.steps[7], -chunk);
      EXPECT_GE(result.rounds * chunk, rows);
      EXPECT_LT((result.rounds - 1) * chunk, rows);
    }
  }
}

/// A product is described as its launch computes it: same places, same extents, round by round.
void expect_described(const GpuLaunchPlan& plan, const GpuProduct& product) {
  const GpuKernelLaunch& launch = plan.launches[static_cast<size_t>(product.launch)];
  ASSERT_TRUE(launch.kernel.starts_with("matmul_"));
  EXPECT_EQ(launch.kernel.substr(7, 2),
            std::string(product.transpose_a ? "t" : "n") + (product.transpose_b ? "t" : "n"));
  constexpr uint64_t kWorkspace = 1 << 20;
  for (int64_t round : {int64_t{0}, plan.rounds / 2, plan.rounds - 1}) {
    GpuProductRound part = product_round(product, round, kWorkspace);
    auto argument = [&](size_t index) {
      uint64_t base = (launch.workspace_arguments >> index & 1u) != 0 ? kWorkspace : 0;
      return static_cast<int64_t>(launch.arguments[index] + base) + launch.steps[index] * round;
    };
    EXPECT_EQ(static_cast<int64_t>(part.operands.out), argument(0));
    EXPECT_EQ(part.shape.out_stride, argument(1));
    EXPECT_EQ(static_cast<int64_t>(part.operands.a), argument(2));
    EXPECT_EQ(part.shape.a_stride, argument(3));
    EXPECT_EQ(static_cast<int64_t>(part.operands.b), argument(4));
    EXPECT_EQ(part.shape.b_stride, argument(5));
    EXPECT_EQ(static_cast<int64_t>(part.operands.bias), argument(6));
    EXPECT_EQ(part.shape.m, std::min(argument(7), argument(10)));
    EXPECT_EQ(part.shape.n, argument(8));
    EXPECT_EQ(part.shape.k, std::min(argument(9), argument(11)));
    EXPECT_EQ(std::bit_cast<float>(static_cast<uint32_t>(argument(12))), part.operands.alpha);
    EXPECT_EQ(part.shape.out_dtype == DType::kF32, argument(13) != 0);
    EXPECT_EQ(part.shape.accumulate, argument(14) != 0);
  }
}

TEST_F(GpuOpLaunchTest, ProductsAreDescribedAsLaunchesComputeThem) {
  int described = 0;
  auto check = [&](const OpCall& call) {
    SCOPED_TRACE(op_kind_name(call.kind));
    GpuLaunchPlan result = plan(call);
    for (int i = 0; i < result.product_count; ++i) {
      expect_described(result, result.products[static_cast<size_t>(i)]);
      ++described;
    }
  };
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    constexpr int64_t kRows = 10'000, kColumns = 64, kWords = 50257;
    TensorView hidden = tensor(dtype, {kRows, kColumns}),
               weight = tensor(dtype, {kWords, kColumns});
    TensorView labels = tensor(DType::kI32, {kRows}), rows = tensor(DType::kF32, {kRows});
    check(call_of(OpKind::kLinearCrossEntropyForward, {rows, rows}, {hidden, weight, labels}));
    for (bool accumulate : {false, true}) {
      OpCall input = call_of(OpKind::kLinearCrossEntropyBackwardInput, {hidden},
                             {hidden, weight, labels, rows});
      input.scale = 0.25f;
      input.accumulate = accumulate;
      ASSERT_GT(plan(input).rounds, 2);
      check(input);
    }
    check(call_of(OpKind::kLinearCrossEntropyBackwardWeight,
                  {tensor(DType::kF32, {kWords, kColumns})}, {hidden, weight, labels, rows}));
    for (int form = 0; form < 4; ++form) {
      OpCall product = call_of(OpKind::kMatmul, {tensor(DType::kF32, {5, 7})},
                               {tensor(dtype, form / 2 != 0 ? Shape{3, 5} : Shape{5, 3}),
                                tensor(dtype, form % 2 != 0 ? Shape{7, 3} : Shape{3, 7})});
      product.transpose_a = form / 2 != 0;
      product.transpose_b = form % 2 != 0;
      check(product);
    }
  }
  EXPECT_EQ(described, 3 * (1 + 2 * 2 + 2 + 4));
}

TEST_F(GpuOpLaunchTest, AttentionIsDescribedWithoutDropoutOnly) {
  OpCall call = call_of(OpKind::kAttentionForward,
                        {tensor(DType::kBF16, {8, 32}), tensor(DType::kF32, {8, 2})},
                        {tensor(DType::kBF16, {8, 64})});
  call.sequence = 4;
  call.heads = 2;
  call.kv_heads = 1;
  call.head_dim = 16;
  call.scale = 0.25f;
  GpuLaunchPlan result = plan(call);
  ASSERT_TRUE(result.attention.has_value());
  EXPECT_EQ(result.attention->shape.batch, 2);
  EXPECT_TRUE(result.attention->shape.is_aligned);
  call.drop_probability = 0.5f;
  EXPECT_FALSE(plan(call).attention.has_value());
  call.drop_probability = 0.0f;
  call.window = 3;
  EXPECT_FALSE(plan(call).attention.has_value());
  call.window = 4;  // all there is
  EXPECT_TRUE(plan(call).attention.has_value());
  call.inputs[1] = tensor(DType::kBF16, {2});
  EXPECT_FALSE(plan(call).attention.has_value());
  call.inputs[1] = {};
  call.inputs[2] = tensor(DType::kI32, {8});
  EXPECT_FALSE(plan(call).attention.has_value());
  call.inputs[2] = {};
  call.inputs[0].memory.offset = 2;
  EXPECT_FALSE(plan(call).attention->shape.is_aligned);
}

TEST_F(GpuOpLaunchTest, ShapesForMatrixUnitsGoToNvidiaCodeAlone) {
  OpCall call = call_of(OpKind::kAttentionForward,
                        {tensor(DType::kBF16, {4, 128}), tensor(DType::kF32, {4, 1})},
                        {tensor(DType::kBF16, {4, 3 * 128})});
  call.sequence = 4;
  call.heads = call.kv_heads = 1;
  call.head_dim = 128;
  call.drop_probability = 0.1f;
  OpCall product = call_of(OpKind::kMatmul, {tensor(DType::kBF16, {256, 256})},
                           {tensor(DType::kBF16, {256, 8}), tensor(DType::kBF16, {8, 256})});
  auto first = [&](const OpCall& planned) {
    Result<GpuLaunchPlan> plan = plan_op(planned, arch_);
    EXPECT_TRUE(plan.is_ok()) << plan.status().to_string();
    return plan.is_ok() ? plan->launches[0] : GpuKernelLaunch();
  };
  EXPECT_EQ(first(call).kernel, "attention_forward_general_d128_bf16");
  EXPECT_EQ(first(product).grid[0], 2u);
  EXPECT_EQ(first(product).shared_bytes, 96u * 1024u);
  // A card of AMD's; then HIP's functions over an NVIDIA card, which runs NVIDIA code.
  arch_.is_amd = true;
  arch_.major = 10;
  EXPECT_EQ(first(call).kernel, "attention_forward_d128_bf16");
  EXPECT_EQ(first(product).grid[0], 4u);
  EXPECT_EQ(first(product).shared_bytes, 0u);
  arch_.major = 9;
  EXPECT_EQ(first(call).kernel, "attention_forward_general_d128_bf16");
  arch_.warp_size = 64;
  EXPECT_EQ(first(call).kernel, "attention_forward_d128_bf16");
}

TEST_F(GpuOpLaunchTest, AttentionThatNoKernelServesIsRefusedByName) {
  OpCall call = call_of(OpKind::kAttentionForward,
                        {tensor(DType::kF32, {4, 512}), tensor(DType::kF32, {4, 1})},
                        {tensor(DType::kF32, {4, 3 * 512})});
  call.sequence = 4;
  call.heads = call.kv_heads = 1;
  call.head_dim = 512;
  Result<GpuLaunchPlan> wide = plan_op(call, arch_);
  ASSERT_FALSE(wide.is_ok());
  EXPECT_EQ(wide.status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(wide.status().message().find("heads of 512"), std::string::npos);
  call.head_dim = 128;
  call.outputs[0].shape = {4, 128};
  arch_.shared_bytes = 16 * 1024;
  Result<GpuLaunchPlan> small = plan_op(call, arch_);
  ASSERT_FALSE(small.is_ok());
  EXPECT_NE(small.status().message().find("this card has 16384"), std::string::npos);
}

}  // namespace
}  // namespace stagecoach
