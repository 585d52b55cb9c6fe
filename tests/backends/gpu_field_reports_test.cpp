// Field reports that concern links, builds and drivers (numbers as in the project's list): 65 peer
// copies claimed but broken, 67 a binary without code for this card, 68 illegal instruction.
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "backends/register_backends.h"
#include "hal/topology.h"
#include "tests/backends/gpu_rig.h"

namespace stagecoach {
namespace {

constexpr ByteCount kProbeBytes = 1 << 20;

class FieldReport65 : public GpuRig {
 protected:
  PeerLink probe(FakePeerCopies behaviour, int64_t timeout_ns) {
    FakeGpuOptions options;
    options.peer_copies = behaviour;
    build(options);
    open("all");
    std::vector<Device*> pair = {&device(0), &device(1)};
    PeerLink link;
    link.source = 0;
    link.target = 1;
    Status status = probe_peer_link(pair, link, kProbeBytes, timeout_ns);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    driver().release_hangs();
    return link;
  }
};

TEST_F(FieldReport65, AWorkingLinkIsFound) {
  PeerLink link = probe(FakePeerCopies::kWork, 10'000'000'000);
  EXPECT_EQ(link.state, PeerState::kWorks) << link.reason;
}

TEST_F(FieldReport65, ACorruptingLinkIsBroken) {
  PeerLink link = probe(FakePeerCopies::kCorrupt, 10'000'000'000);
  EXPECT_EQ(link.state, PeerState::kBroken);
  EXPECT_NE(link.reason, "");
}

TEST_F(FieldReport65, ALinkThatNeverAnswersIsBroken) {
  PeerLink link = probe(FakePeerCopies::kHang, 100'000'000);
  EXPECT_EQ(link.state, PeerState::kBroken);
  EXPECT_NE(link.reason, "");
}

TEST_F(FieldReport65, WhatTheDriverDeniesIsUnimplemented) {
  FakeGpuOptions options;
  options.peer_copies = FakePeerCopies::kImpossible;
  build(options);
  open("all");
  Status status = device(0).enable_peer(device(1));
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("no peer access from fake_gpu:0 to fake_gpu:1"),
            std::string::npos)
      << status.message();
}

// The user decides both ways: a probe cannot know every machine.
TEST_F(FieldReport65, TheUserOverridesTheProbe) {
  FakeGpuOptions options;
  options.peer_copies = FakePeerCopies::kCorrupt;
  build(options);
  open("all");
  std::vector<Device*> pair = {&device(0), &device(1)};
  const std::vector<PeerLink> untested = {PeerLink{0, 1}, PeerLink{1, 0}};
  auto settled = [&](PeerChoice choice) {
    std::vector<PeerLink> links = untested;
    Status status = settle_peer_links(pair, choice, links);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    return links;
  };
  for (const PeerLink& link : settled(PeerChoice::kProbe)) {
    EXPECT_EQ(link.state, PeerState::kBroken);
  }
  for (const PeerLink& link : settled(PeerChoice::kOn)) {
    EXPECT_EQ(link.state, PeerState::kWorks);
    EXPECT_EQ(link.reason, "not tested: STAGECOACH_PEER=on");
  }
  options.peer_copies = FakePeerCopies::kWork;
  build(options);
  open("all");
  pair = {&device(0), &device(1)};
  for (const PeerLink& link : settled(PeerChoice::kOff)) {
    EXPECT_EQ(link.state, PeerState::kImpossible);
    EXPECT_EQ(link.reason, "turned off by STAGECOACH_PEER=off");
  }
}

TEST_F(FieldReport65, WhatTheDriverDeniesCannotBeForced) {
  FakeGpuOptions options;
  options.peer_copies = FakePeerCopies::kImpossible;
  build(options);
  open("all");
  std::vector<PeerLink> links = {PeerLink{0, 1}};
  ASSERT_TRUE(settle_peer_links({&device(0), &device(1)}, PeerChoice::kOn, links).is_ok());
  EXPECT_EQ(links[0].state, PeerState::kImpossible);
  EXPECT_NE(links[0].reason, "");
}

class FieldReport67 : public GpuRig {
 protected:
  Status opening() {
    auto opened = machine_->open("0");
    return opened.status();
  }
  static std::span<const std::byte> image(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size() + 1));
  }
};

TEST_F(FieldReport67, ACardWithoutCodeIsRefusedByName) {
  build();
  machine_->table().edit_code().image = image(kFakeForeignModule);
  machine_->table().edit_code().targets = {"fake_80", "fake_86"};
  Status status = opening();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  for (const char* part : {"Fake card 0", "fake_90", "fake_80, fake_86", "FAKE_ARCHS"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
  EXPECT_EQ(driver().leaks(), "");
}

TEST_F(FieldReport67, ABuildWithoutCodeSaysSo) {
  build();
  machine_->table().edit_code().image = {};
  Status status = machine_->backend().availability();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("holds no fake_gpu kernels"), std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("FAKE_ARCHS"), std::string::npos);
}

TEST_F(FieldReport67, ADriverOlderThanTheToolkitIsNamedWithBothVersions) {
  FakeGpuOptions options;
  options.driver_version = 12040;
  build(options);
  machine_->table().edit_code().toolkit_version = 13000;
  Status status = machine_->backend().availability();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  for (const char* part : {"12.4", "13.0", "update the driver"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
}

TEST_F(FieldReport67, ADriverAsNewAsTheToolkitIsNot) {
  FakeGpuOptions options;
  options.driver_version = 13020;
  build(options);
  machine_->table().edit_code().toolkit_version = 13000;
  EXPECT_TRUE(machine_->backend().availability().is_ok());
}

TEST_F(FieldReport67, NoCardIsAReasonAndTheCpuStillRuns) {
  FakeGpuOptions options;
  options.card_count = 0;
  build(options);
  Status status = machine_->backend().availability();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("finds no card"), std::string::npos) << status.message();
  EXPECT_TRUE(machine_->backend().list_devices().empty());
  EXPECT_TRUE(built_in_backends().open_devices("cpu:1").is_ok());
}

// No part of the build may ask for the build machine's own instructions: faster loops are chosen at
// run time (core/multiversion.h).
TEST(FieldReport68, NoBuildFileAsksForThisMachinesInstructions) {
  const std::regex forbidden(R"(-march=|-mtune=native|-mavx|-mcpu=native|-xHost)");
  std::filesystem::path root(STAGECOACH_SOURCE_DIR);
  std::vector<std::filesystem::path> files = {root / "CMakeLists.txt", root / "CMakePresets.json",
                                              root / "tests/CMakeLists.txt"};
  for (const auto& entry : std::filesystem::directory_iterator(root / "cmake")) {
    files.push_back(entry.path());
  }
  ASSERT_GT(files.size(), 5u);
  for (const auto& file : files) {
    std::ifstream stream(file);
    std::stringstream text;
    text << stream.rdbuf();
    ASSERT_NE(text.str(), "") << file;
    EXPECT_FALSE(std::regex_search(text.str(), forbidden)) << file;
  }
}

}  // namespace
}  // namespace stagecoach
