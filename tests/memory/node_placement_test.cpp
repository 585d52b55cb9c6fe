#include "memory/node_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "tests/memory/fake_node_binder.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Two nodes with processors and one that is memory only.
HostNodes three_nodes() {
  HostNodes nodes;
  nodes.nodes = {{0, {0, 1}, kGiB}, {2, {2, 3}, kGiB}, {5, {}, kGiB}};
  return nodes;
}

std::vector<std::byte> some_pages() {
  return std::vector<std::byte>(64 * kKiB, std::byte{7});
}

TEST(NodePlacement, PagesAreBoundTouchedByThreadsOfTheNodeAndLookedAt) {
  FakeNodeBinder binder;
  NodePlacement placement(three_nodes(), 2, binder);
  std::vector<std::byte> pages = some_pages();
  placement.place(pages.data(), std::ssize(pages));
  EXPECT_THAT(placement.doubt(), IsEmpty());
  EXPECT_THAT(binder.threads(), ElementsAre(ElementsAre(2, 3)));
  EXPECT_EQ(pages[100], std::byte{0});
}

TEST(NodePlacement, ANodeWithoutProcessorsIsBoundToAllTheSame) {
  FakeNodeBinder binder;
  NodePlacement placement(three_nodes(), 5, binder);
  bool is_done = false;
  placement.run([&] { is_done = true; });
  std::vector<std::byte> pages = some_pages();
  placement.verify(pages.data(), std::ssize(pages));
  EXPECT_TRUE(is_done);
  EXPECT_THAT(placement.doubt(), IsEmpty());
  EXPECT_THAT(binder.threads(), IsEmpty());
}

// A container's filter: first touch from threads of the node is what is left, and may have worked.
TEST(NodePlacement, WhereBindingIsForbiddenOnlyLookingTells) {
  FakeNodeBinder binder;
  binder.forbids_pages = true;
  std::vector<std::byte> pages = some_pages();
  NodePlacement there(three_nodes(), 0, binder);
  there.place(pages.data(), std::ssize(pages));
  EXPECT_THAT(there.doubt(), IsEmpty()) << "pages were seen to be on node 0";
  EXPECT_THAT(binder.threads(), ElementsAre(ElementsAre(0, 1)));
  NodePlacement elsewhere(three_nodes(), 2, binder);
  elsewhere.place(pages.data(), std::ssize(pages));
  EXPECT_THAT(elsewhere.doubt(), HasSubstr("asked for on node 2 lie on node 0"));
  EXPECT_THAT(elsewhere.doubt(), HasSubstr("mbind: Operation not permitted"));
  binder.forbids_looking = true;
  NodePlacement unseen(three_nodes(), 0, binder);
  unseen.place(pages.data(), std::ssize(pages));
  EXPECT_THAT(unseen.doubt(), HasSubstr("move_pages: Operation not permitted"));
}

TEST(NodePlacement, BindingThatDoesNothingIsNoticed) {
  FakeNodeBinder binder;
  binder.ignores_binding = true;
  std::vector<std::byte> pages = some_pages();
  NodePlacement placement(three_nodes(), 2, binder);
  placement.place(pages.data(), std::ssize(pages));
  EXPECT_THAT(placement.doubt(), HasSubstr("lie on node 0"));
}

TEST(NodePlacement, TheOnlyNodeNeedsNothing) {
  FakeNodeBinder binder;
  binder.forbids_pages = binder.forbids_threads = binder.forbids_looking = true;
  HostNodes one;
  one.nodes = {{0, {0}, kGiB}};
  NodePlacement placement(one, 0, binder);
  std::vector<std::byte> pages = some_pages();
  placement.place(pages.data(), std::ssize(pages));
  placement.run([] {});
  EXPECT_THAT(placement.doubt(), IsEmpty());
  EXPECT_EQ(binder.calls(), 0);
  EXPECT_EQ(pages[100], std::byte{0});
}

// On this machine, whatever it has and allows: no call ends the program, and where the system says
// where pages lie it names a node that there is.
TEST(SystemNodeBinder, AnswersOrSaysWhyNot) {
  NodeBinder& binder = system_node_binder();
  HostNodes nodes = read_host_nodes().value();
  std::vector<std::byte> pages = some_pages();
  Result<PageNodes> found = binder.find_pages(pages.data(), std::ssize(pages));
  if (found.is_ok()) {
    for (const auto& [node, count] : found->pages) {
      EXPECT_NE(nodes.find(node), nullptr) << node;
      EXPECT_GT(count, 0);
    }
  } else {
    EXPECT_THAT(found.status().message(), HasSubstr("move_pages: "));
  }
  std::vector<int> first = {nodes.find(nodes.with_cpus().front())->cpus.front()};
  int ran_on = -1;
  Status bound = run_on_cpus(binder, first, [&] { ran_on = ::sched_getcpu(); });
  EXPECT_TRUE(!bound.is_ok() || ran_on == first.front()) << ran_on;
  Status none = run_on_cpus(binder, {1 << 15}, [&] { ran_on = -2; });
  EXPECT_THAT(none.message(), HasSubstr("sched_setaffinity: "));
  EXPECT_EQ(ran_on, -2) << "it runs all the same";
  Status pages_bound = binder.bind_pages(nullptr, 0, 1 << 20);
  EXPECT_EQ(pages_bound.code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace stagecoach
