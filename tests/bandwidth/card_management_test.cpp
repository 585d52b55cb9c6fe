#include "tools/bandwidth/card_management.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/shared_library.h"
#include "tests/bandwidth/bandwidth_fixture.h"
#include "tests/core/json_schema.h"
#include "tests/fake_gpu/fake_gpu_machine.h"
#include "tests/fake_management/fake_management.h"
#include "tools/bandwidth/bandwidth_context.h"
#include "tools/bandwidth/card_findings.h"
#include "tools/bandwidth/card_watch.h"
#include "tools/bandwidth/findings.h"
#include "tools/bandwidth/nvml_functions.h"

namespace stagecoach {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kAbsent = "libstagecoach_absent.so";
constexpr const char* kFirstUuid = "GPU-00fafafa-fafa-fafa-fafa-fafafafafafa";
constexpr const char* kSecondUuid = "GPU-01fafafa-fafa-fafa-fafa-fafafafafafa";

/// The fake library, showing a machine as long as this lives.
class ManagedMachine {
 public:
  ManagedMachine() {
    const std::vector<std::string> names = {STAGECOACH_FAKE_MANAGEMENT};
    Result<SharedLibrary> library = SharedLibrary::open(names);
    EXPECT_TRUE(library.is_ok()) << library.status().to_string();
    use_ = reinterpret_cast<FakeManagementUse>(library->find(kFakeManagementSymbol));
    use_(&machine);
  }
  ~ManagedMachine() { use_(nullptr); }
  ManagedMachine(const ManagedMachine&) = delete;
  ManagedMachine& operator=(const ManagedMachine&) = delete;

  /// The machine's second card is the library's first.
  void add_two_cards() {
    FakeManagedCard card;
    card.uuid = kSecondUuid;
    card.pci_address = "FA4E:01:00.0";
    card.replays = 12;
    machine.cards.push_back(card);
    card.uuid = kFirstUuid;
    card.pci_address = "FA4E:00:00.0";
    card.replays = 3;
    machine.cards.push_back(card);
  }
  static CardManagement open_nvml_alone() {
    return CardManagement::open(STAGECOACH_FAKE_MANAGEMENT, kAbsent);
  }
  static CardManagement open_rocm_smi_alone() {
    return CardManagement::open(kAbsent, STAGECOACH_FAKE_MANAGEMENT);
  }

  FakeManagement machine;

 private:
  FakeManagementUse use_ = nullptr;
};

DeviceInfo device_of(const std::string& id, const std::string& uuid, const std::string& address) {
  DeviceInfo info;
  info.id = id;
  info.uuid = uuid;
  info.pci_address = address;
  return info;
}

TEST(CardManagementLibraries, AbsentOnesLeaveEverythingUnknown) {
  CardManagement management = CardManagement::open(kAbsent, kAbsent);
  EXPECT_THAT(management.absent(), ElementsAre(HasSubstr("no NVML: "), HasSubstr("no ROCm SMI: ")));
  EXPECT_FALSE(management.read(device_of("cuda:0", kFirstUuid, "0000:01:00.0")).has_value());
  // A library that is something else.
  EXPECT_THAT(CardManagement::open("libc.so.6", "libc.so.6").absent(),
              ElementsAre(HasSubstr("has not the functions"), HasSubstr("has not the functions")));
}

TEST(CardManagementLibraries, ThatDoNotStartLeaveEverythingUnknown) {
  ManagedMachine fake;
  fake.add_two_cards();
  fake.machine.start_error = NvmlConstants::kDriverNotLoaded;
  CardManagement management =
      CardManagement::open(STAGECOACH_FAKE_MANAGEMENT, STAGECOACH_FAKE_MANAGEMENT);
  EXPECT_THAT(management.absent(), ElementsAre(HasSubstr("the driver is not loaded"),
                                               HasSubstr("does not start (error 9)")));
  EXPECT_FALSE(management.read(device_of("cuda:0", kFirstUuid, "")).has_value());
}

// CUDA's card 0 is the library's card 1: by number each would get the other's figures.
TEST(CardManagementLibraries, FindCardsByUuidOrAddressAndNotByNumber) {
  ManagedMachine fake;
  fake.add_two_cards();
  CardManagement nvml = ManagedMachine::open_nvml_alone();
  EXPECT_EQ(nvml.read(device_of("cuda:0", kFirstUuid, "FA4E:00:00.0"))->replays, 3);
  EXPECT_EQ(nvml.read(device_of("cuda:0", kSecondUuid, ""))->replays, 12);
  EXPECT_EQ(nvml.read(device_of("hip:0", "", "FA4E:01:00.0"))->replays, 12);
  EXPECT_FALSE(nvml.read(device_of("cuda:7", "GPU-07", "FA4E:07:00.0")).has_value());
  EXPECT_FALSE(nvml.read(device_of("cpu:0", "", "")).has_value());
  CardManagement smi = ManagedMachine::open_rocm_smi_alone();
  EXPECT_EQ(smi.read(device_of("hip:0", "GPU-ff", "fa4e:00:00.0"))->replays, 3);
  EXPECT_EQ(smi.read(device_of("hip:1", "", "FA4E:01:00.0"))->replays, 12);
  EXPECT_FALSE(smi.read(device_of("hip:1", "", "FA4E:02:00.0")).has_value());
}

TEST(CardManagementLibraries, TellWhatTheyKnow) {
  ManagedMachine fake;
  fake.add_two_cards();
  FakeManagedCard& card = fake.machine.cards[1];
  card.width = 8;
  card.throttle_bits = 0x1 | NvmlConstants::kSoftwareThermal | NvmlConstants::kPowerCap;
  card.bar_bytes = 256 << 20;
  card.processes = {11, 12};
  auto state = ManagedMachine::open_nvml_alone().read(device_of("cuda:0", kFirstUuid, ""));
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->pcie_width, 8);
  EXPECT_EQ(state->max_pcie_width, 16);
  EXPECT_EQ(state->power_w, 120);
  EXPECT_EQ(state->power_limit_w, 700);
  EXPECT_EQ(state->temperature_c, 40);
  EXPECT_EQ(state->has_ecc, true);
  EXPECT_EQ(state->is_persistent, false);
  EXPECT_EQ(state->maps_all_memory(), false);
  // That it is idle is no fault.
  EXPECT_THAT(*state->throttle_reasons, ElementsAre("the power limit", "heat"));
  ASSERT_EQ(state->processes->size(), 2u);
  EXPECT_EQ(state->processes->front().id, 11);
  EXPECT_FALSE(state->processes->front().memory_bytes.has_value());
  EXPECT_THAT(card_state_text(*state), HasSubstr("slowed down by the power limit and heat"));
  auto amd = ManagedMachine::open_rocm_smi_alone().read(device_of("hip:0", "", "fa4e:00:00.0"));
  ASSERT_TRUE(amd.has_value());
  EXPECT_EQ(amd->power_w, 120);
  EXPECT_EQ(amd->temperature_c, 40);
  EXPECT_EQ(amd->maps_all_memory(), false);
  EXPECT_FALSE(amd->pcie_width.has_value());
  EXPECT_THAT(card_state_text(*amd), HasSubstr("core unknown"));
}

// Each call alone: what it would tell is null and nothing else is lost.
TEST(CardManagementLibraries, WhatIsNotSupportedIsNull) {
  ManagedMachine fake;
  fake.add_two_cards();
  const DeviceInfo device = device_of("cuda:0", kFirstUuid, "FA4E:00:00.0");
  auto nulls = [&](CardManagement management) {
    int count = 0;
    auto state = management.read(device);
    EXPECT_TRUE(state.has_value());
    Json json = card_state_json(*state);
    for (const auto& [name, value] : json.members()) count += value.is_null() ? 1 : 0;
    return count;
  };
  const int usual = nulls(ManagedMachine::open_nvml_alone());
  const int usual_amd = nulls(ManagedMachine::open_rocm_smi_alone());
  for (const char* function :
       {"nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkGeneration",
        "nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkWidth",
        "nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetPowerUsage", "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetTemperature",
        "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetEccMode", "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetMigMode",
        "nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetComputeRunningProcesses_v3"}) {
    fake.machine.unsupported = {function};
    EXPECT_GT(nulls(ManagedMachine::open_nvml_alone()), usual) << function;
    EXPECT_LE(nulls(ManagedMachine::open_nvml_alone()), usual + 2) << function;
  }
  for (const char* function :
       {"rsmi_dev_pci_replay_counter_get", "rsmi_dev_power_ave_get", "rsmi_dev_power_cap_get",
        "rsmi_dev_temp_metric_get", "rsmi_dev_busy_percent_get", "rsmi_dev_memory_total_get"}) {
    fake.machine.unsupported = {function};
    EXPECT_GT(nulls(ManagedMachine::open_rocm_smi_alone()), usual_amd) << function;
  }
  fake.machine.unsupported = {"*"};
  Json json = card_state_json(*ManagedMachine::open_nvml_alone().read(device));
  for (const auto& [name, value] : json.members()) {
    EXPECT_EQ(value.is_null(), name != "source") << name;
  }
}

TEST(CardManagementLibraries, InstancesAreAskedThroughTheirCard) {
  ManagedMachine fake;
  FakeManagedCard instance;
  instance.uuid = "MIG-00fafafa-fafa-fafa-fafa-fafafafafafa";
  instance.mig_parent = kSecondUuid;
  instance.replays = 99;
  instance.processes = {7};
  fake.machine.cards = {instance};
  fake.add_two_cards();
  fake.machine.cards[1].has_mig = true;
  CardManagement nvml = ManagedMachine::open_nvml_alone();
  auto state = nvml.read(device_of("cuda:0", instance.uuid, "FA4E:00:00.0"));
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->mig_parent, kSecondUuid);
  EXPECT_EQ(state->replays, 12);
  EXPECT_EQ(state->has_mig, true);
  EXPECT_EQ(state->processes->size(), 1u);
  // Its card's address does not stand for an instance that the library does not know.
  EXPECT_FALSE(nvml.read(device_of("cuda:0", "MIG-ff", "FA4E:00:00.0")).has_value());
}

TEST(CardManagementLibraries, PciNumbersHaveTheirForm) {
  EXPECT_EQ(pci_number("0000:65:00.0"), 0x6500u);
  EXPECT_EQ(pci_number("00000001:65:1F.7"), (uint64_t{1} << 32) + 0x65ff);
  EXPECT_FALSE(pci_number("65:00.0").has_value());
  EXPECT_FALSE(pci_number("0000:65:00.0x").has_value());
  EXPECT_FALSE(pci_number("0000:165:00.0").has_value());
  EXPECT_FALSE(pci_number("").has_value());
}

/// A measured report of two fake cards, looked at before and after.
class WatchedRun {
 public:
  explicit WatchedRun(FakePeerCopies peers = FakePeerCopies::kWork,
                      FakeIdentities identities = FakeIdentities::kCards)
      : machine_([&] {
          FakeGpuOptions options;
          options.peer_copies = peers;
          options.identities = identities;
          return options;
        }()) {
    if (identities == FakeIdentities::kCards) managed.add_two_cards();
    auto opened = machine_.open("all");
    EXPECT_TRUE(opened.is_ok()) << opened.status().to_string();
    devices_ = std::move(*opened);
  }

  /// Runs `suite`, and `meanwhile` before the last look.
  template <typename Change>
  BandwidthReport run(const std::string& suite, Change&& meanwhile) {
    std::vector<DeviceInfo> infos;
    std::vector<Device*> pointers;
    for (const auto& device : devices_) {
      infos.push_back(device->info());
      pointers.push_back(device.get());
    }
    CardWatch watch(ManagedMachine::open_nvml_alone(), infos);
    BandwidthOptions options = short_options(suite);
    options.sizes = {64 * kKiB};
    options.filter = suite == "copy" ? "/up/" : "/check$|/both/|staged/64K$";
    BandwidthReport report = run_suite(devices_, options);
    meanwhile(managed.machine);
    watch.look();
    report.context = measurement_context(pointers, {});
    report.context["suite"] = suite;
    watch.describe(report.context);
    report.findings = find_problems(report);
    EXPECT_EQ(JsonSchema::read("bandwidth.schema.json").violation(bandwidth_json(report, false)),
              "");
    return report;
  }

  ManagedMachine managed;

 private:
  FakeGpuMachine machine_;
  std::vector<std::unique_ptr<Device>> devices_;
};

auto says(const char* text) {
  return Contains(Field(&Finding::text, HasSubstr(text)));
}

TEST(CardWatching, QuietCardsAreNoFinding) {
  BandwidthReport report = WatchedRun().run("copy", [](FakeManagement&) {});
  EXPECT_THAT(find_card_problems(report), IsEmpty());
  const Json& card = *report.context.find("devices")->items()[1].find("card");
  EXPECT_EQ(card.find("replays")->as_integer(), 12);
  EXPECT_EQ(card.find("during")->find("replays")->as_integer(), 0);
}

TEST(CardWatching, ReplaysThatRiseAreAFinding) {
  BandwidthReport report =
      WatchedRun().run("copy", [](FakeManagement& machine) { machine.cards[0].replays += 5; });
  EXPECT_THAT(report.findings, says("link of fake_gpu:1 repeated 5 packets"));
  EXPECT_THAT(report.findings, Contains(Field(&Finding::remedy, HasSubstr("cable or riser"))));
}

TEST(CardWatching, ReplaysAndWrongBytesTogetherAreTheRiser) {
  BandwidthReport report =
      WatchedRun(FakePeerCopies::kCorrupt).run("p2p", [](FakeManagement& machine) {
        machine.cards[0].replays += 5;
      });
  ASSERT_FALSE(report.findings.empty());
  EXPECT_THAT(report.findings,
              says("bytes of fake_gpu:1 arrived wrong and its link repeated 5 packets"));
  EXPECT_EQ(report.findings.front().severity, Severity::kError);
  for (const Finding& finding : report.findings) {
    if (finding.text.find("repeated") == std::string::npos) continue;
    EXPECT_THAT(finding.results, Contains(HasSubstr("/check")));
  }
}

TEST(CardWatching, SlowedDownAndSharedCardsAreFindings) {
  WatchedRun run;
  run.managed.machine.cards[1].busy_percent = 60;
  run.managed.machine.cards[0].processes = {101, 102, 103};
  BandwidthReport report = run.run("copy", [](FakeManagement& machine) {
    machine.cards[0].throttle_bits = NvmlConstants::kHardwareThermal;
    machine.cards[0].throttled_ns += 3600'000'000'000ull;
    machine.cards[1].throttle_bits = NvmlConstants::kPowerCap;
  });
  EXPECT_THAT(report.findings,
              says("fake_gpu:1 was slowed down by heat (hardware), 3600000 ms of"));
  EXPECT_THAT(report.findings, says("fake_gpu:0 was slowed down by the power limit"));
  // One of the three is the program that measures.
  EXPECT_THAT(report.findings, says("2 other programs used fake_gpu:1"));
  EXPECT_THAT(report.findings, says("fake_gpu:0 was 60 % busy before the run"));
}

// A small BAR costs copies between devices and nothing else.
TEST(CardWatching, SmallBarsMatterToPeerCopiesAlone) {
  auto shrink = [](BandwidthReport& report) {
    Json devices = Json::array();
    for (Json device : report.context.find("devices")->items()) {
      device["memory_bytes"] = 24 * kGiB;
      devices.push_back(std::move(device));
    }
    report.context["devices"] = std::move(devices);
    report.findings = find_problems(report);
  };
  auto set = [](FakeManagement& machine) { machine.cards[0].bar_bytes = 256 << 20; };
  BandwidthReport copies = WatchedRun().run("copy", set);
  shrink(copies);
  EXPECT_THAT(copies.findings, testing::Not(says("resizable BAR is off")));
  BandwidthReport peers = WatchedRun().run("p2p", set);
  shrink(peers);
  EXPECT_THAT(peers.findings, says("fake_gpu:1 can be reached by others through 256.00 MiB"));
}

TEST(CardWatching, InstancesOfOneCardShareItsLinkAndReachNoPeers) {
  BandwidthReport report = WatchedRun(FakePeerCopies::kWork, FakeIdentities::kMigInstances)
                               .run("p2p", [](FakeManagement&) {});
  EXPECT_THAT(report.findings,
              says("fake_gpu:0 and fake_gpu:1 are instances (MIG) of the card at"));
  int skipped = 0, measured = 0;
  for (const MeasurementRecord& record : report.records) {
    bool is_direct = record.info.id.find("staged") == std::string::npos;
    EXPECT_EQ(record.status, is_direct ? MeasurementStatus::kSkipped : MeasurementStatus::kOk)
        << record.info.id << record.reason;
    if (is_direct) {
      EXPECT_THAT(record.reason, HasSubstr("MIG"));
    }
    ++(is_direct ? skipped : measured);
  }
  EXPECT_GT(skipped, 0);
  EXPECT_GT(measured, 0);
}

// Each process of an isolated run sees a part.
TEST(CardWatching, ProcessesOfARunAddUp) {
  auto context = [](int64_t replays, const char* reason) {
    Json during = Json::object();
    during["elapsed_ms"] = 100;
    during["replays"] = replays;
    during["throttled_ms"] = Json();
    during["throttle_reasons"] = Json::array();
    during["throttle_reasons"].push_back(reason);
    during["other_processes"] = replays;
    during["busy_percent_before"] = 1.5;
    Json device = Json::object();
    device["id"] = "cuda:0";
    device["card"] = Json::object();
    device["card"]["during"] = std::move(during);
    Json json = Json::object();
    json["devices"] = Json::array();
    json["devices"].push_back(std::move(device));
    return json;
  };
  Json joined = context(2, "heat");
  join_card_context(context(3, "the power limit"), joined);
  const Json& during = *joined.find("devices")->items()[0].find("card")->find("during");
  EXPECT_EQ(during.find("replays")->as_integer(), 5);
  EXPECT_EQ(during.find("elapsed_ms")->as_integer(), 200);
  EXPECT_TRUE(during.find("throttled_ms")->is_null());
  EXPECT_EQ(during.find("other_processes")->as_integer(), 3);
  EXPECT_EQ(during.find("throttle_reasons")->items().size(), 2u);
  Json alone = context(2, "heat");
  join_card_context(Json::object(), alone);
  EXPECT_EQ(alone.dump(), context(2, "heat").dump());
}

TEST(CardWatching, WhatMattersWhereADeviceIsBehindIsToldOfBoth) {
  Json devices = Json::array();
  for (int i = 0; i < 3; ++i) {
    Json device = Json::object();
    device["id"] = fmt::format("cuda:{}", i);
    device["pci"]["bytes_per_s"] = i == 2 ? 7.88e9 : 31.5e9;
    device["pci"]["max_bytes_per_s"] = 31.5e9;
    device["pci"]["numa_node"] = i == 2 ? Json(1) : Json();
    devices.push_back(std::move(device));
  }
  BandwidthReport report;
  report.context["devices"] = std::move(devices);
  EXPECT_EQ(place_of_device(report.context, "cuda:2"),
            "link 7.88 GB/s, NUMA node 1, replays unknown");
  EXPECT_EQ(place_of_device(report.context, "cuda:0"),
            "link 31.5 GB/s, NUMA node unknown, replays unknown");
  EXPECT_EQ(place_of_device(report.context, "cuda:9"), "unknown");
  EXPECT_THAT(find_card_problems(report),
              ElementsAre(Field(&Finding::text,
                                "the link of cuda:2 carries 7.88 GB/s each way, its parts could "
                                "carry 31.5")));
}

}  // namespace
}  // namespace stagecoach
