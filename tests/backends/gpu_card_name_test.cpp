#include "backends/gpu/gpu_card_name.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "backends/gpu/gpu_error_map.h"
#include "backends/gpu/gpu_error_remedy.h"
#include "hal/backend_registry.h"
#include "tests/backends/gpu_rig.h"

namespace stagecoach {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Three fake cards with UUIDs and addresses, or three instances of one card.
class GpuCardName : public testing::Test {
 protected:
  void build(FakeIdentities identities) {
    FakeGpuOptions options;
    options.card_count = 3;
    options.identities = identities;
    machine_ = std::make_unique<FakeGpuMachine>(options);
    registry_.add(machine_->make_backend());
  }
  void SetUp() override { build(FakeIdentities::kCards); }

  /// The id of the only device that `which` opens, or the failure.
  std::string open(const std::string& which) {
    auto devices = registry_.open_devices("fake_gpu:" + which);
    if (!devices.is_ok()) return devices.status().to_string();
    EXPECT_EQ(devices->size(), 1u) << which;
    return devices->front()->id();
  }
  StatusCode code_of(const std::string& which) {
    return registry_.open_devices("fake_gpu:" + which).status().code();
  }

  std::unique_ptr<FakeGpuMachine> machine_;
  BackendRegistry registry_;
};

TEST_F(GpuCardName, UuidsAndAddressesOpenTheirCard) {
  EXPECT_EQ(open("GPU-02fafafa-fafa-fafa-fafa-fafafafafafa"), "fake_gpu:2");
  EXPECT_EQ(open("GPU-01FAFAFA"), "fake_gpu:1");
  EXPECT_EQ(open("GPU-01"), "fake_gpu:1");
  EXPECT_EQ(open("fa4e:02:00.0"), "fake_gpu:2");
  EXPECT_EQ(open("FA4E:01:00.0[memory=1M]"), "fake_gpu:1");
  EXPECT_EQ(open("0000fa4e:01:00.0"), "fake_gpu:1");
  EXPECT_EQ(open("1"), "fake_gpu:1");
  auto parts = registry_.open_devices("fake_gpu:GPU-02x2,fake_gpu:fa4e:00:00.0x2");
  ASSERT_TRUE(parts.is_ok()) << parts.status().to_string();
  ASSERT_EQ(parts->size(), 4u);
  EXPECT_EQ((*parts)[1]->id(), "fake_gpu:2.1");
  EXPECT_EQ((*parts)[2]->id(), "fake_gpu:0.0");
  EXPECT_EQ((*parts)[2]->info().index, 2);
  EXPECT_EQ((*parts)[2]->info().uuid, "GPU-00fafafa-fafa-fafa-fafa-fafafafafafa");
}

TEST_F(GpuCardName, WhatIsNotThereIsRefusedWithWhatIs) {
  for (const char* which : {"GPU-07", "MIG-01", "0000:07:00.0"}) {
    EXPECT_EQ(code_of(which), StatusCode::kUnavailable) << which;
    EXPECT_THAT(open(which),
                AllOf(HasSubstr("no card has this "),
                      HasSubstr("fake_gpu:0 (GPU-00fafafa-fafa-fafa-fafa-fafafafafafa at "
                                "FA4E:00:00.0), fake_gpu:1 (GPU-01")))
        << which;
  }
  EXPECT_THAT(open("7"), HasSubstr("card 7 is not there; this machine has 3 (0 to 2)"));
}

TEST_F(GpuCardName, WhatIsNoNameIsRefused) {
  for (const char* which : {"GPU-", "GPU-zz", "MIG-01fafafa/1", "0000:65", "0000:65:00.9.1",
                            "00:00.0:1", "g000:65:00.0", "GPU-02x", "GPU-02x99", "gpu-02"}) {
    EXPECT_EQ(code_of(which), StatusCode::kInvalidArgument) << which;
    EXPECT_THAT(open(which), HasSubstr(std::string("fake_gpu:") + which)) << which;
  }
  EXPECT_THAT(open("0000:65"), HasSubstr("write one such as fake_gpu:0000:65:00.0"));
}

// Three instances of a card have its address together, and a UUID each.
TEST_F(GpuCardName, InstancesAreDevicesOfTheirOwn) {
  registry_ = BackendRegistry();
  build(FakeIdentities::kMigInstances);
  EXPECT_EQ(open("MIG-01"), "fake_gpu:1");
  EXPECT_EQ(code_of("fa4e:00:00.0"), StatusCode::kInvalidArgument);
  EXPECT_THAT(open("fa4e:00:00.0"), AllOf(HasSubstr("several have this PCI address"),
                                          HasSubstr("fake_gpu:2 (MIG-02fafafa")));
  EXPECT_EQ(code_of("MIG-0"), StatusCode::kInvalidArgument);
  auto all = registry_.open_devices("fake_gpu:all");
  ASSERT_TRUE(all.is_ok());
  for (const auto& device : *all) EXPECT_TRUE(is_mig_instance(device->info()));
}

TEST_F(GpuCardName, DriversWithoutUuidsStillOpenByNumber) {
  registry_ = BackendRegistry();
  build(FakeIdentities::kNone);
  EXPECT_EQ(open("1"), "fake_gpu:1");
  EXPECT_THAT(open("GPU-01"), HasSubstr("fake_gpu:1 (without a UUID at no address)"));
}

TEST(GpuUuidText, IsThatOfTheVendorsTools) {
  GpuUuid uuid = {0x8f, 0x3c, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0xff};
  EXPECT_EQ(gpu_uuid_text(uuid, "NVIDIA H200"), "GPU-8f3c0001-0203-0405-0607-08090a0b0cff");
  EXPECT_EQ(gpu_uuid_text(uuid, "NVIDIA H200 MIG 1g.18gb"),
            "MIG-8f3c0001-0203-0405-0607-08090a0b0cff");
  GpuUuid digits{};
  constexpr std::string_view kDigits = "9f02a1b2c3d4e5f6";
  std::copy(kDigits.begin(), kDigits.end(), digits.begin());
  EXPECT_EQ(gpu_uuid_text(digits, "AMD Radeon RX 7900 XTX"), "GPU-9f02a1b2c3d4e5f6");
}

class GpuNotReady : public GpuRig {};

// What keeps a card from starting is told with what to do about it, at whichever call it shows.
TEST_F(GpuNotReady, ErrorsOfTheDriverComeWithTheirRemedy) {
  const std::pair<int, const char*> kErrors[] = {
      {FakeGpuError::kSystemNotReady, "nvidia-fabricmanager"},
      {FakeGpuError::kNotPermitted, "IMEX"},
      {FakeGpuError::kDeviceUnavailable, "compute mode"}};
  for (const auto& [error, remedy] : kErrors) {
    for (FakeGpuFunction function : {FakeGpuFunction::init, FakeGpuFunction::retain_context}) {
      build();
      driver().fail_call(function, 1, error);
      auto devices = machine_->open("0");
      ASSERT_FALSE(devices.is_ok()) << error;
      EXPECT_EQ(devices.status().code(), StatusCode::kUnavailable) << error;
      EXPECT_THAT(devices.status().message(), HasSubstr(remedy)) << error;
      EXPECT_THAT(devices.status().message(), HasSubstr(fmt::format("({})", error)));
      EXPECT_EQ(map_gpu_error(error), StatusCode::kUnavailable);
    }
  }
  EXPECT_EQ(gpu_error_remedy(GpuErrorCode::kOutOfMemory), nullptr);
}

}  // namespace
}  // namespace stagecoach
