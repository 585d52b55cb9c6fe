// Every operation on real devices against the CPU oracle. Set STAGECOACH_TEST_DEVICES to a device
// string (cuda:0, hip:0, "cuda:0,cuda:0[libraries=off]"); without it these tests are skipped.
// STAGECOACH_TEST_SMALL=1 runs the small shapes of the emulation instead, for memory checkers.
// STAGECOACH_TEST_SHARD=2/8 takes every eighth case from number 2 on.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>

#include "backends/register_backends.h"
#include "hal/backend_registry.h"
#include "tests/kernels/op_case.h"

namespace stagecoach {
namespace {

class GpuOpsTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    const char* text = std::getenv("STAGECOACH_TEST_DEVICES");
    if (text == nullptr) GTEST_SKIP() << "no GPU named: set STAGECOACH_TEST_DEVICES=cuda:0";
    spec_ = text;
    const char* small = std::getenv("STAGECOACH_TEST_SMALL");
    large_ = small == nullptr || std::string_view(small) != "1";
    const char* shard = std::getenv("STAGECOACH_TEST_SHARD");
    if (shard != nullptr) {
      ASSERT_EQ(std::sscanf(shard, "%d/%d", &shard_, &shard_count_), 2) << shard;
      ASSERT_TRUE(shard_ >= 0 && shard_ < shard_count_) << shard;
    }
  }

  void open(bool is_deterministic) {
    auto opened = built_in_backends().open_devices(spec_, {.is_deterministic = is_deterministic});
    ASSERT_TRUE(opened.is_ok()) << opened.status().to_string();
    devices_ = std::move(opened).value();
  }
  /// Twice: the bits must be the same, if they are to repeat.
  static void check(OpMachine& machine, const OpCase& test, const OpOutputs& expected,
                    const OpOutputs& exact, bool repeats) {
    Result<OpOutputs> actual = machine.run(test);
    Result<OpOutputs> again = machine.run(test);
    ASSERT_TRUE(actual.is_ok()) << actual.status().to_string();
    ASSERT_TRUE(again.is_ok()) << again.status().to_string();
    EXPECT_EQ(compare_outputs(test, *actual, expected, exact), "");
    for (size_t i = 0; repeats && i < actual->size(); ++i) {
      EXPECT_TRUE((*actual)[i].bytes == (*again)[i].bytes) << "output " << i << ", run again";
    }
  }

  /// Every case of the kinds that `takes` names, on every device. The oracle, which takes most of
  /// the time, computes each once.
  void check_all(bool repeats, bool (*takes)(OpKind kind)) {
    auto oracle = oracle_machine();
    std::vector<std::unique_ptr<OpMachine>> machines;
    for (auto& device : devices_) machines.push_back(device_machine(*device));
    CaseMaker maker(std::random_device{}());
    int number = 0;
    for (const auto& make : op_cases(GetParam(), large_)) {
      if (number++ % shard_count_ != shard_) continue;
      OpCase test = make(maker);
      if (!takes(test.call.kind)) continue;
      Result<OpOutputs> expected = oracle->run(test);
      Result<OpOutputs> exact = oracle->run(in_fp32(test));
      ASSERT_TRUE(expected.is_ok()) << expected.status().to_string();
      ASSERT_TRUE(exact.is_ok()) << exact.status().to_string();
      for (size_t i = 0; i < machines.size(); ++i) {
        SCOPED_TRACE(devices_[i]->id() + " " + std::string(op_kind_name(test.call.kind)) + ": " +
                     test.name);
        check(*machines[i], test, *expected, *exact, repeats);
      }
    }
  }

  std::string spec_;
  std::vector<std::unique_ptr<Device>> devices_;
  bool large_ = true;
  int shard_ = 0, shard_count_ = 1;
};

TEST_P(GpuOpsTest, AgreeWithTheOracle) {
  open(true);
  check_all(true, [](OpKind) { return true; });
}

/// What a device opened without asking for deterministic results may compute in another way.
TEST_P(GpuOpsTest, FasterWaysAgreeWithTheOracle) {
  open(false);
  check_all(false, [](OpKind kind) {
    return kind == OpKind::kAttentionForward || kind == OpKind::kAttentionBackward;
  });
}

/// Too many scores for one call of a library's bit-exact way, which then computes some heads at a
/// time; the oracle would take minutes, so that ways are compared with each other.
TEST_P(GpuOpsTest, WaysOfLongAttentionAgree) {
  if (!large_ || GetParam() == DType::kF32) GTEST_SKIP() << "for long sequences in 16 bits";
  constexpr int64_t kRows = 8192, kHeads = 16, kKeyHeads = 4, kDim = 64;
  const DType dtype = GetParam();
  const Shape qkv = {kRows, (kHeads + 2 * kKeyHeads) * kDim}, out = {kRows, kHeads * kDim};
  CaseMaker maker(std::random_device{}());
  OpCase forward = make_case(
      "long attention", OpKind::kAttentionForward,
      {CaseMaker::poisoned(dtype, out), CaseMaker::poisoned(DType::kF32, {kRows, kHeads})},
      {maker.random(dtype, qkv)});
  forward.call.sequence = kRows;
  forward.call.heads = kHeads;
  forward.call.kv_heads = kKeyHeads;
  forward.call.head_dim = kDim;
  forward.call.scale = 0.125f;
  std::vector<std::vector<double>> results;
  for (bool is_deterministic : {false, true}) {
    open(is_deterministic);
    auto machine = device_machine(*devices_.front());
    Result<OpOutputs> saved = machine->run(forward);
    ASSERT_TRUE(saved.is_ok()) << saved.status().to_string();
    OpCase backward = make_case(
        "long attention backward", OpKind::kAttentionBackward, {CaseMaker::poisoned(dtype, qkv)},
        {CaseMaker(1).random(dtype, out), forward.inputs[0], (*saved)[0], (*saved)[1]});
    OpCall call = forward.call;
    call.kind = OpKind::kAttentionBackward;
    backward.call = call;
    Result<OpOutputs> grads = machine->run(backward);
    ASSERT_TRUE(grads.is_ok()) << grads.status().to_string();
    Result<OpOutputs> again = machine->run(backward);
    ASSERT_TRUE(again.is_ok()) << again.status().to_string();
    EXPECT_TRUE(!is_deterministic || (*grads)[0].bytes == (*again)[0].bytes);
    results.push_back((*grads)[0].values());
  }
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < results[0].size(); ++i) {
    difference += (results[0][i] - results[1][i]) * (results[0][i] - results[1][i]);
    norm += results[0][i] * results[0][i];
  }
  EXPECT_LE(std::sqrt(difference), 1e-2 * std::sqrt(norm));
  EXPECT_GT(norm, 0.0);
}

INSTANTIATE_TEST_SUITE_P(Storage, GpuOpsTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

}  // namespace
}  // namespace stagecoach
