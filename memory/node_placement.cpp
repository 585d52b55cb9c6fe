#include "memory/node_placement.h"

#include <cstring>
#include <fmt/format.h>
#include <utility>

namespace stagecoach {

NodePlacement::NodePlacement(const HostNodes& nodes, int node, NodeBinder& binder)
    : node_(node), has_choice_(nodes.with_memory().size() > 1), binder_(binder) {
  if (const HostNode* found = nodes.find(node)) cpus_ = found->cpus;
}

void NodePlacement::note_doubt(std::string doubt) {
  if (!doubt_.empty()) return;
  doubt_ = std::move(doubt);
  if (!refusal_.empty()) doubt_ += fmt::format(" (binding was refused: {})", refusal_);
}

void NodePlacement::place(std::byte* data, ByteCount size) {
  auto touch = [data, size] { std::memset(data, 0, static_cast<size_t>(size)); };
  if (!has_choice_) return touch();
  Status bound = binder_.bind_pages(data, size, node_);
  if (!bound.is_ok()) refusal_ = bound.message();
  // Where threads cannot be bound either, looking tells.
  static_cast<void>(run_on_cpus(binder_, cpus_, touch));
  verify(data, size);
}

void NodePlacement::run(const std::function<void()>& allocate) {
  if (!has_choice_) return allocate();
  static_cast<void>(run_on_cpus(binder_, cpus_, [&] {
    Status bound = binder_.bind_allocations(node_);
    if (!bound.is_ok()) refusal_ = bound.message();
    allocate();
  }));
}

void NodePlacement::verify(const std::byte* data, ByteCount size) {
  if (!has_choice_) return;
  Result<PageNodes> found = binder_.find_pages(data, size);
  if (!found.is_ok()) {
    return note_doubt(
        fmt::format("the system does not tell where pages lie: {}", found.status().message()));
  }
  for (const auto& [node, pages] : found->pages) {
    if (node == node_) continue;
    return note_doubt(fmt::format("pages asked for on node {} lie on node {}", node_, node));
  }
  if (found->unknown > 0) {
    note_doubt("the system does not tell where pages of this kind lie");
  }
}

}  // namespace stagecoach
