#include "model/segment_memory.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

namespace stagecoach {

namespace {

bool contains(std::span<const int> list, int index) {
  return std::find(list.begin(), list.end(), index) != list.end();
}

/// What several passes need to know of a chain.
struct Chain {
  std::span<const ActivationInfo> activations;
  std::span<const SegmentIo* const> segments;
  int64_t rows;

  int activation_count() const { return static_cast<int>(activations.size()); }
  int segment_count() const { return static_cast<int>(segments.size()); }
  int last() const { return activation_count() - 1; }
  ByteCount size_bytes(int activation) const { return activations[activation].size_bytes(rows); }
  int writer(int activation) const {
    for (int s = 0; s < segment_count(); ++s) {
      if (contains(segments[s]->writes, activation)) return s;
    }
    return -1;
  }
  /// The last segment that reads the activation, or -1: the first to add to its gradient.
  int last_reader(int activation) const {
    for (int s = segment_count() - 1; s >= 0; --s) {
      if (contains(segments[s]->reads, activation)) return s;
    }
    return -1;
  }
  bool is_saved(int activation) const {
    return std::any_of(segments.begin(), segments.end(), [&](const SegmentIo* io) {
      return contains(io->saved_for_input, activation) ||
             contains(io->saved_for_weight, activation);
    });
  }
};

/// Segments needed for the activations in `needed`, found backwards.
std::vector<uint8_t> slice_segments(const Chain& chain, std::vector<uint8_t> needed) {
  std::vector<uint8_t> runs(chain.segments.size(), 0);
  for (int s = chain.segment_count() - 1; s >= 0; --s) {
    const SegmentIo& io = *chain.segments[s];
    runs[s] =
        std::any_of(io.writes.begin(), io.writes.end(), [&](int w) { return needed[w] != 0; });
    if (!runs[s]) continue;
    for (int r : io.reads) needed[r] = 1;
  }
  return runs;
}

/// Collects tensors that need workspace and puts their offsets into slots.
class WorkspaceBuilder {
 public:
  void add(Slot& slot, WorkspaceRequest request) {
    slot.place = Place::kWorkspace;
    slots_.push_back(&slot);
    requests_.push_back(request);
  }
  ByteCount finish() const {
    WorkspacePlan plan = plan_workspace(requests_);
    for (size_t i = 0; i < slots_.size(); ++i) slots_[i]->offset = plan.offsets[i];
    return plan.size_bytes;
  }

 private:
  std::vector<Slot*> slots_;
  std::vector<WorkspaceRequest> requests_;
};

/// Lays out a forward pass over `runs`. Activations in `kept` already have their slots.
ForwardLayout plan_forward(const Chain& chain, const std::vector<Slot>& kept,
                           std::vector<uint8_t> runs, bool has_output) {
  ForwardLayout layout;
  layout.activations = kept;
  layout.runs = std::move(runs);
  WorkspaceBuilder workspace;
  for (int a = 0; a < chain.activation_count(); ++a) {
    Slot& slot = layout.activations[a];
    bool is_last = a == chain.last();
    if (slot.place != Place::kNone) {
      layout.copies_output |= is_last && has_output && slot.place == Place::kSaved;
      continue;
    }
    if (is_last && has_output) {
      slot.place = Place::kOutput;
      continue;
    }
    int first = chain.writer(a);
    if (!layout.runs[first]) continue;
    int last = first;
    for (int s = first + 1; s < chain.segment_count(); ++s) {
      if (layout.runs[s] && contains(chain.segments[s]->reads, a)) last = s;
    }
    workspace.add(slot, {chain.size_bytes(a), first, last});
  }
  layout.workspace_bytes = workspace.finish();
  return layout;
}

BackwardLayout plan_backward(const Chain& chain, bool split) {
  BackwardLayout layout;
  layout.gradients.resize(chain.activations.size());
  layout.gradients.front().place = Place::kInputGradient;
  layout.gradients.back().place = Place::kOutputGradient;
  WorkspaceBuilder workspace;
  int count = chain.segment_count();
  for (int a = 1; a < chain.last(); ++a) {
    if (!dtype_is_float(chain.activations[a].dtype)) continue;
    int writer = chain.writer(a);
    const SegmentIo& writer_io = *chain.segments[writer];
    int source = contains(writer_io.scratch_gradients, a) ? writer : chain.last_reader(a);
    if (source < 0) continue;
    int first = count - 1 - source;
    int last = count - 1 - writer;
    // Weight parts run after all input parts, in the same order.
    if (split && !writer_io.weightless) last += count;
    workspace.add(layout.gradients[a], {chain.size_bytes(a), first, last});
  }
  layout.workspace_bytes = workspace.finish();
  return layout;
}

}  // namespace

WorkspacePlan plan_workspace(std::span<const WorkspaceRequest> requests) {
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return requests[a].size > requests[b].size; });
  WorkspacePlan plan;
  plan.offsets.assign(requests.size(), 0);
  std::vector<size_t> placed;  // by offset
  for (size_t index : order) {
    const WorkspaceRequest& request = requests[index];
    ByteCount offset = 0;
    for (size_t other : placed) {
      bool together = requests[other].first_step <= request.last_step &&
                      request.first_step <= requests[other].last_step;
      if (!together) continue;
      if (plan.offsets[other] >= offset + request.size) break;
      ByteCount end = plan.offsets[other] + requests[other].size;
      offset = std::max(offset, align_up(end, kTensorAlignmentBytes));
    }
    plan.offsets[index] = offset;
    auto after =
        std::upper_bound(placed.begin(), placed.end(), offset,
                         [&](ByteCount value, size_t p) { return value < plan.offsets[p]; });
    placed.insert(after, index);
    plan.size_bytes =
        std::max(plan.size_bytes, align_up(offset + request.size, kTensorAlignmentBytes));
  }
  return plan;
}

ChainLayout plan_chain(std::span<const ActivationInfo> activations,
                       std::span<const SegmentIo* const> segments, int64_t rows) {
  Chain chain{activations, segments, rows};
  ChainLayout layout;
  std::vector<Slot> nothing(activations.size());
  nothing.front().place = Place::kInput;
  layout.kept = nothing;
  std::vector<uint8_t> saved(activations.size(), 0);
  for (int a = 1; a < chain.activation_count(); ++a) {
    if (!chain.is_saved(a)) continue;
    saved[a] = 1;
    layout.kept[a] = {Place::kSaved, layout.saved_bytes};
    layout.saved_bytes += align_up(chain.size_bytes(a), kTensorAlignmentBytes);
  }
  std::vector<uint8_t> everything(segments.size(), 1);
  layout.plain = plan_forward(chain, nothing, everything, true);
  layout.saving = plan_forward(chain, layout.kept, everything, true);
  layout.recomputing = plan_forward(chain, layout.kept, slice_segments(chain, saved), false);
  layout.whole = plan_backward(chain, false);
  layout.split = plan_backward(chain, true);
  return layout;
}

namespace {

/// Checks the declarations of one chain, front to back.
class ChainValidator {
 public:
  ChainValidator(std::span<const ActivationInfo> activations,
                 std::span<const SegmentIo* const> segments)
      : activations_(activations), segments_(segments) {}

  Status check() {
    if (segments_.empty()) return invalid_argument("the chain has no segments");
    if (activations_.size() < 2) {
      return invalid_argument("the chain needs an input and an output activation");
    }
    for (const ActivationInfo& info : activations_) {
      if (info.columns > 0) continue;
      return invalid_argument(
          fmt::format("activation '{}' has {} columns", info.name, info.columns));
    }
    written_.assign(activations_.size(), 0);
    used_.assign(activations_.size(), 0);
    written_.front() = used_.back() = 1;
    for (size_t s = 0; s < segments_.size(); ++s) {
      STAGECOACH_RETURN_IF_ERROR(check_segment(static_cast<int>(s), *segments_[s]));
    }
    return check_uses();
  }

 private:
  Status fail(int segment, int activation, std::string_view what) const {
    bool known = activation >= 0 && activation < static_cast<int>(activations_.size());
    return invalid_argument(fmt::format("segment {} {}: activation {}{}", segment, what, activation,
                                        known ? " '" + activations_[activation].name + "'" : ""));
  }

  Status check_range(int segment, std::span<const int> list, std::string_view what) const {
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i] < 0 || list[i] >= static_cast<int>(activations_.size())) {
        return fail(segment, list[i], fmt::format("{} what does not exist", what));
      }
      if (contains(list.first(i), list[i])) return fail(segment, list[i], "lists one twice");
    }
    return Status::ok();
  }

  Status check_segment(int s, const SegmentIo& io) {
    STAGECOACH_RETURN_IF_ERROR(check_range(s, io.reads, "reads"));
    STAGECOACH_RETURN_IF_ERROR(check_range(s, io.writes, "writes"));
    for (int r : io.reads) {
      if (!written_[r]) return fail(s, r, "reads what nothing before it writes");
      if (r + 1 == static_cast<int>(activations_.size())) return fail(s, r, "reads the output");
      used_[r] = 1;
    }
    for (int w : io.writes) {
      if (written_[w]) return fail(s, w, "writes what is already written");
      written_[w] = 1;
    }
    for (std::span<const int> saved :
         {std::span<const int>(io.saved_for_input), std::span<const int>(io.saved_for_weight)}) {
      for (int index : saved) {
        if (!contains(io.reads, index) && !contains(io.writes, index)) {
          return fail(s, index, "saves what it neither reads nor writes");
        }
      }
    }
    for (int index : io.scratch_gradients) {
      if (!contains(io.writes, index)) {
        return fail(s, index, "has a scratch gradient of what it does not write");
      }
    }
    return Status::ok();
  }

  /// Every segment must matter; an extra activation of its own may stay unread.
  Status check_uses() const {
    for (size_t s = 0; s < segments_.size(); ++s) {
      const SegmentIo& io = *segments_[s];
      int segment = static_cast<int>(s);
      if (std::none_of(io.writes.begin(), io.writes.end(), [&](int w) { return used_[w] != 0; })) {
        return invalid_argument(fmt::format("segment {} writes nothing that is used", segment));
      }
      for (int index : io.scratch_gradients) {
        if (used_[index]) return fail(segment, index, "has a scratch gradient that others write");
      }
    }
    for (size_t a = 0; a < activations_.size(); ++a) {
      if (!written_[a]) {
        return invalid_argument(
            fmt::format("activation {} '{}' is written by no segment", a, activations_[a].name));
      }
    }
    return Status::ok();
  }

  std::span<const ActivationInfo> activations_;
  std::span<const SegmentIo* const> segments_;
  std::vector<uint8_t> written_;
  std::vector<uint8_t> used_;
};

}  // namespace

Status validate_chain(std::span<const ActivationInfo> activations,
                      std::span<const SegmentIo* const> segments) {
  return ChainValidator(activations, segments).check();
}

}  // namespace stagecoach
