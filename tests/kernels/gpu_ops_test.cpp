// Every operation on real devices against the CPU oracle. Set STAGECOACH_TEST_DEVICES to a device
// string (cuda:0, hip:0, cuda:0x2); without it these tests are skipped. STAGECOACH_TEST_SMALL=1
// runs the small shapes of the emulation instead, for memory checkers.

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
  }

  void open(bool is_deterministic) {
    auto opened = built_in_backends().open_devices(spec_, {.is_deterministic = is_deterministic});
    ASSERT_TRUE(opened.is_ok()) << opened.status().to_string();
    devices_ = std::move(opened).value();
  }
  /// Twice: the bits must be the same, if they are to repeat.
  static void check(OpMachine& machine, OpMachine& oracle, const OpCase& test, bool repeats) {
    Result<OpOutputs> actual = machine.run(test);
    Result<OpOutputs> again = machine.run(test);
    Result<OpOutputs> expected = oracle.run(test);
    Result<OpOutputs> exact = oracle.run(in_fp32(test));
    ASSERT_TRUE(expected.is_ok()) << expected.status().to_string();
    ASSERT_TRUE(exact.is_ok()) << exact.status().to_string();
    ASSERT_TRUE(actual.is_ok()) << actual.status().to_string();
    ASSERT_TRUE(again.is_ok()) << again.status().to_string();
    EXPECT_EQ(compare_outputs(test, *actual, *expected, *exact), "");
    for (size_t i = 0; repeats && i < actual->size(); ++i) {
      EXPECT_TRUE((*actual)[i].bytes == (*again)[i].bytes) << "output " << i << ", run again";
    }
  }

  /// Every case of the kinds that `takes` names, on every device.
  void check_all(bool repeats, bool (*takes)(OpKind kind)) {
    auto oracle = oracle_machine();
    for (auto& device : devices_) {
      auto machine = device_machine(*device);
      CaseMaker maker(std::random_device{}());
      for (const auto& make : op_cases(GetParam(), large_)) {
        OpCase test = make(maker);
        if (!takes(test.call.kind)) continue;
        SCOPED_TRACE(device->id() + " " + std::string(op_kind_name(test.call.kind)) + ": " +
                     test.name);
        check(*machine, *oracle, test, repeats);
      }
    }
  }

  std::string spec_;
  std::vector<std::unique_ptr<Device>> devices_;
  bool large_ = true;
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

INSTANTIATE_TEST_SUITE_P(Storage, GpuOpsTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

}  // namespace
}  // namespace stagecoach
