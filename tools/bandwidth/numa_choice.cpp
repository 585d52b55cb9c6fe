#include "tools/bandwidth/numa_choice.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <utility>

namespace stagecoach {

int NumaChoice::home(int device_node) const {
  std::vector<int> memory = nodes.with_memory(), cpus = nodes.with_cpus();
  auto has = [](const std::vector<int>& all, int one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  if (has(memory, device_node)) return device_node;
  for (int one : memory) {
    if (has(cpus, one)) return one;
  }
  return memory.empty() ? nodes.nodes.front().index : memory.front();
}

std::vector<int> NumaChoice::copy_nodes(int device_node) const {
  if (wish == NodeWish::kOne) return {node};
  int own = home(device_node);
  std::vector<int> wanted;
  if (wish != NodeWish::kRemote) wanted.push_back(own);
  if (wish == NodeWish::kLocal) return wanted;
  for (int one : nodes.with_memory()) {
    if (one != own) wanted.push_back(one);
  }
  return wanted;
}

std::vector<HostPlace> NumaChoice::host_places() const {
  std::vector<HostPlace> places;
  std::vector<int> cpus = nodes.with_cpus();
  if (wish == NodeWish::kOne) {
    bool has_cpus = std::find(cpus.begin(), cpus.end(), node) != cpus.end();
    if (has_cpus || !cpus.empty()) places.push_back({has_cpus ? node : cpus.front(), node});
    return places;
  }
  for (int threads : cpus) {
    for (int memory : nodes.with_memory()) {
      bool is_wanted = wish == NodeWish::kAll || (threads == memory) == (wish == NodeWish::kLocal);
      if (is_wanted) places.push_back({threads, memory});
    }
  }
  return places;
}

std::string NumaChoice::note_about(const std::string& device, int device_node) const {
  if (!nodes.is_told) {
    return "this system tells nothing of NUMA nodes: nothing is bound, and node 0 stands for all "
           "of "
           "the host";
  }
  if (nodes.with_memory().size() < 2) {
    return fmt::format("this host has one NUMA node ({}): nothing needs to be bound",
                       nodes.with_memory().front());
  }
  bool is_known = device.empty() || wish == NodeWish::kOne || home(device_node) == device_node;
  if (is_known) return "";
  return fmt::format(
      "the NUMA node that {} is attached to is not known: node {} is taken for its own", device,
      home(device_node));
}

Result<NumaChoice> choose_numa(const std::string& text, HostNodes nodes, NodeBinder& binder) {
  NumaChoice choice;
  choice.nodes = std::move(nodes);
  choice.binder = &binder;
  std::vector<int> memory = choice.nodes.with_memory();
  if (text == "remote" && memory.size() < 2) {
    return invalid_argument(fmt::format(
        "--numa is 'remote'; this machine has one NUMA node with memory ({}): use local "
        "or leave it out",
        choice.nodes.list()));
  }
  const std::pair<const char*, NodeWish> names[] = {
      {"local", NodeWish::kLocal}, {"remote", NodeWish::kRemote}, {"all", NodeWish::kAll}};
  for (const auto& [name, wish] : names) {
    choice.wish = wish;
    if (text == name) return choice;
  }
  choice.wish = NodeWish::kOne;
  const char* end = text.data() + text.size();
  bool is_number = !text.empty() && std::from_chars(text.data(), end, choice.node).ptr == end &&
                   choice.node >= 0;
  if (is_number && std::find(memory.begin(), memory.end(), choice.node) != memory.end()) {
    return choice;
  }
  return invalid_argument(fmt::format(
      "--numa is '{}'; it must be local, remote, all or a node with memory that this process may "
      "use: of {}",
      text, choice.nodes.list()));
}

}  // namespace stagecoach
