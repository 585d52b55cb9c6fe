#include "tools/bandwidth/pci_path.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bandwidth/bandwidth_fixture.h"
#include "tests/core/temporary_folder.h"
#include "tools/bandwidth/link_load.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

/// A folder as /sys, with devices where the kernel puts them.
class SysfsTree {
 public:
  std::string path() const { return folder_.path(); }

  /// Adds a function below `parent` ("pci0000:00/0000:00:01.0").
  void add(const std::string& parent, const std::string& address) const {
    fs::path place = fs::path(path()) / "devices" / parent / address;
    fs::create_directories(place);
    fs::path list = fs::path(path()) / "bus/pci/devices";
    fs::create_directories(list);
    fs::create_symlink(place, list / address);
    current_ = place;
  }
  /// Writes a file of the function added last.
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((current_ / name).parent_path());
    std::ofstream(current_ / name) << text << "\n";
  }
  void link(const std::string& speed, int width, const std::string& max_speed,
            int max_width) const {
    write("current_link_speed", speed);
    write("current_link_width", std::to_string(width));
    write("max_link_speed", max_speed);
    write("max_link_width", std::to_string(max_width));
  }

 private:
  TemporaryFolder folder_;
  mutable fs::path current_;
};

TEST(PciLinkRate, IsThatOfTheStandardAfterEncoding) {
  EXPECT_NEAR(pci_link_bytes_per_s(2.5, 16), 4e9, 1);
  EXPECT_NEAR(pci_link_bytes_per_s(16, 16) / 1e9, 31.5, 0.05);
  EXPECT_NEAR(pci_link_bytes_per_s(32, 16) / 1e9, 63.0, 0.05);
  EXPECT_NEAR(pci_link_bytes_per_s(64, 16) / 1e9, 121, 0.1);
  EXPECT_EQ(pci_link_bytes_per_s(0, 16), 0);
}

// A Radeon card's own function shows the link inside the card; the slot's is that of its port.
TEST(PciPathReading, TakesTheSlowestLinkOfTheWholeWay) {
  SysfsTree tree;
  tree.add("pci0000:00", "0000:00:01.0");
  tree.link("16.0 GT/s PCIe", 4, "16.0 GT/s PCIe", 16);
  tree.add("pci0000:00/0000:00:01.0", "0000:01:00.0");
  tree.link("16.0 GT/s PCIe", 4, "16.0 GT/s PCIe", 16);
  tree.add("pci0000:00/0000:00:01.0/0000:01:00.0", "0000:02:00.0");
  tree.link("16.0 GT/s PCIe", 16, "16.0 GT/s PCIe", 16);
  tree.add("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0", "0000:03:00.0");
  tree.link("16.0 GT/s PCIe", 16, "16.0 GT/s PCIe", 16);
  tree.write("numa_node", "1");
  tree.write("iommu_group/type", "DMA-FQ");
  tree.write("resource",
             "0x00000000a0000000 0x00000000afffffff 0x000000000014220c\n"
             "0x0000000000000000 0x0000000000000000 0x0000000000000000");
  auto path = read_pci_path("00000000:03:00.0", tree.path());
  ASSERT_TRUE(path.has_value());
  EXPECT_EQ(path->host_bridge, "pci0000:00");
  ASSERT_EQ(path->hops.size(), 4u);
  EXPECT_EQ(path->hops.front().address, "0000:00:01.0");
  EXPECT_EQ(path->hops.back().address, "0000:03:00.0");
  EXPECT_NEAR(path->bytes_per_s() / 1e9, 7.88, 0.01);
  EXPECT_NEAR(path->max_bytes_per_s() / 1e9, 31.5, 0.05);
  EXPECT_EQ(path->numa_node, 1);
  EXPECT_EQ(path->iommu_type, "DMA-FQ");
  EXPECT_EQ(path->largest_bar, 256 * kMiB);
}

/// Configuration space of a bridge whose list of capabilities ends in ACS with these control bits.
std::string bridge_config(unsigned control) {
  constexpr size_t kFirst = 0x100, kAcs = 0x148, kControl = 6;
  std::string bytes(0x1000, '\0');
  auto word = [&bytes](size_t at, unsigned value) {
    bytes[at] = static_cast<char>(value & 0xff);
    bytes[at + 1] = static_cast<char>(value >> 8);
  };
  word(kFirst, 0x0001);  // advanced error reporting
  word(kFirst + 2, kAcs << 4 | 2);
  word(kAcs, 0x000d);
  word(kAcs + kControl, control);
  return bytes;
}

// Only root sees the bits: others are shown the first part of the space.
TEST(PciPathReading, RedirectionOfPeerCopiesIsToldWhereItIsShown) {
  auto read = [](const std::string& first, const std::string& second) {
    SysfsTree tree;
    tree.add("pci0000:00", "0000:00:01.0");
    tree.write("config", first);
    tree.add("pci0000:00/0000:00:01.0", "0000:01:00.0");
    tree.write("config", second);
    tree.write("local_cpulist", "0-7,16-23");
    auto path = read_pci_path("0000:01:00.0", tree.path());
    EXPECT_EQ(path->near_threads, "0-7,16-23");
    return path->acs_redirects;
  };
  const std::string card(0x1000, '\0');
  EXPECT_EQ(read(bridge_config(0x04), card), true);
  EXPECT_EQ(read(bridge_config(0x08), card), true);
  EXPECT_EQ(read(bridge_config(0x01), card), false);
  EXPECT_EQ(read(card, card), false);
  EXPECT_EQ(read(std::string(64, '\0'), std::string(64, '\0')), std::nullopt);
}

TEST(PciPathReading, WhatIsNotToldIsUnknown) {
  SysfsTree tree;
  tree.add("pci0000:00", "0000:00:05.0");
  tree.link("Unknown", 255, "Unknown", 255);
  tree.write("numa_node", "-1");
  auto path = read_pci_path("0000:00:05.0", tree.path());
  ASSERT_TRUE(path.has_value());
  EXPECT_EQ(path->bytes_per_s(), 0);
  EXPECT_EQ(path->max_bytes_per_s(), 0);
  EXPECT_EQ(path->numa_node, -1);
  EXPECT_EQ(path->iommu_type, "");
  EXPECT_FALSE(path->acs_redirects.has_value());
  EXPECT_EQ(path->near_threads, "");
  EXPECT_FALSE(read_pci_path("0000:00:06.0", tree.path()).has_value());
  EXPECT_FALSE(read_pci_path("", tree.path()).has_value());
  EXPECT_FALSE(read_pci_path("../../etc", tree.path()).has_value());
  EXPECT_FALSE(read_pci_path("0000:00:05.0", tree.path() + "/nowhere").has_value());
}

// Idle links go slower; what was seen under load counts.
TEST(PciPathReading, KeepsTheFastestOfSeveralReadings) {
  PciPath idle, loaded;
  idle.hops = {{"0000:00:01.0", 2.5, 16, 16, 16}};
  loaded.hops = {{"0000:00:01.0", 16, 16, 8, 16}};
  idle.keep_fastest(loaded);
  EXPECT_EQ(idle.hops[0].speed_gt_per_s, 16);
  EXPECT_EQ(idle.hops[0].width, 16);
}

// The load itself runs on any device; what sysfs does not list keeps what was known.
TEST(PciPathReading, UnderLoadChangesNothingWhereNothingIsListed) {
  auto devices = open_devices("cpu:1[memory=16M,h2d=1G,d2h=1G]");
  std::unique_ptr<TaskPool> pool = TaskPool::create(1);
  SysfsTree tree;
  PciPath path;
  path.hops = {{"0000:00:01.0", 2.5, 16, 16, 16}};
  ASSERT_TRUE(read_links_under_load(*devices[0], *pool, path, tree.path()).is_ok());
  EXPECT_EQ(path.hops[0].speed_gt_per_s, 2.5);
  EXPECT_GT(devices[0]->counters().bytes_up, 0);
  EXPECT_GT(devices[0]->counters().bytes_down, 0);
}

TEST(PciRelations, AreThoseOfNvidiaSmi) {
  auto path = [](const std::string& bridge, const std::vector<std::string>& hops, int node) {
    PciPath one;
    one.host_bridge = bridge;
    for (const std::string& address : hops) one.hops.push_back({address});
    one.numa_node = node;
    return one;
  };
  PciPath a = path("pci0000:00", {"root", "up", "down1", "a"}, 0);
  EXPECT_STREQ(pci_relation(a, path("pci0000:00", {"root", "up", "down2", "b"}, 0)), "PIX");
  EXPECT_STREQ(pci_relation(a, path("pci0000:00", {"root", "up2", "x", "y", "b"}, 0)), "PXB");
  EXPECT_STREQ(pci_relation(a, path("pci0000:00", {"root2", "b"}, 0)), "PHB");
  EXPECT_STREQ(pci_relation(a, path("pci0000:80", {"root2", "b"}, 0)), "NODE");
  EXPECT_STREQ(pci_relation(a, path("pci0000:80", {"root2", "b"}, 1)), "SYS");
  EXPECT_STREQ(pci_relation(a, path("pci0000:80", {"root2", "b"}, -1)), "SYS");
}

}  // namespace
}  // namespace stagecoach
