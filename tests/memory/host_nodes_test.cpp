#include "memory/host_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

HostNodes nodes_of(const std::string& synthetic,
                   const std::optional<std::vector<int>>& affinity = std::nullopt) {
  internal::HostNodeInputs inputs;
  inputs.synthetic = synthetic;
  inputs.affinity = affinity;
  Result<HostNodes> nodes = internal::read_host_nodes(inputs);
  EXPECT_TRUE(nodes.is_ok()) << nodes.status().to_string();
  return nodes.is_ok() ? *nodes : HostNodes{};
}

// Ids are looked up, never counted.
TEST(HostNodes, KeepTheSystemsNumbersWithTheirGaps) {
  HostNodes nodes = nodes_of("NUMANode:3(memory=1GB indexes=0,2,8) PU:2");
  EXPECT_EQ(nodes.list(), "0, 2, 8");
  EXPECT_THAT(nodes.with_cpus(), ElementsAre(0, 2, 8));
  EXPECT_THAT(nodes.find(8)->cpus, ElementsAre(4, 5));
  EXPECT_EQ(nodes.find(1), nullptr);
}

// Grace Hopper: memory of the card is a node beside that of the processors.
TEST(HostNodes, MemoryOnlyNodesHaveNoProcessors) {
  HostNodes nodes =
      nodes_of("Package:2 [NUMANode(memory=2GB indexes=0,2,1,10)] [NUMANode(memory=1GB)] PU:2");
  EXPECT_THAT(nodes.with_cpus(), ElementsAre(0, 1));
  EXPECT_THAT(nodes.with_memory(), ElementsAre(0, 1, 2, 10));
  EXPECT_THAT(nodes.find(1)->cpus, ElementsAre(2, 3));
  EXPECT_THAT(nodes.find(10)->cpus, IsEmpty());
}

TEST(HostNodes, AreCutDownToWhatTheProcessMayRunOn) {
  HostNodes nodes = nodes_of("NUMANode:2(memory=1GB) PU:4", std::vector<int>{5, 6});
  EXPECT_THAT(nodes.with_cpus(), ElementsAre(1));
  EXPECT_THAT(nodes.find(1)->cpus, ElementsAre(5, 6));
  EXPECT_THAT(nodes.with_memory(), ElementsAre(0, 1)) << "its memory is there all the same";
}

// Node 3 has neither processors nor memory; without node 0's nothing at all would be left.
TEST(HostNodes, PhantomNodesAreLeftOut) {
  const std::string xml = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x3" complete_cpuset="0x3" allowed_cpuset="0x3"
    nodeset="0x9" complete_nodeset="0x9" allowed_nodeset="0x9" gp_index="1">
    <object type="NUMANode" os_index="0" cpuset="0x3" complete_cpuset="0x3" nodeset="0x1"
      complete_nodeset="0x1" gp_index="2" local_memory="1000000000"/>
    <object type="NUMANode" os_index="3" cpuset="0x3" complete_cpuset="0x3" nodeset="0x8"
      complete_nodeset="0x8" gp_index="3" local_memory="0"/>
    <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x9"
      complete_nodeset="0x9" gp_index="4"/>
    <object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x9"
      complete_nodeset="0x9" gp_index="5"/>
  </object>
</topology>
)";
  internal::HostNodeInputs inputs;
  inputs.xml = xml;
  Result<HostNodes> nodes = internal::read_host_nodes(inputs);
  ASSERT_TRUE(nodes.is_ok()) << nodes.status().to_string();
  EXPECT_EQ(nodes->list(), "0");
  EXPECT_THAT(nodes->find(0)->cpus, ElementsAre(0, 1));
}

TEST(HostNodes, ThisMachineHasOneThatCanBeUsed) {
  Result<HostNodes> nodes = read_host_nodes();
  ASSERT_TRUE(nodes.is_ok()) << nodes.status().to_string();
  EXPECT_FALSE(nodes->with_cpus().empty());
  EXPECT_FALSE(nodes->with_memory().empty());
}

TEST(HostNodes, DescriptionsThatAreNoneAreRefused) {
  internal::HostNodeInputs inputs;
  inputs.synthetic = "no machine";
  EXPECT_EQ(internal::read_host_nodes(inputs).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stagecoach
