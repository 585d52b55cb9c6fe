#include "memory/residency.h"

#include <algorithm>
#include <map>
#include <optional>

#include "memory/arena.h"

namespace stagecoach {

namespace {

/// From one read of a block to its next.
struct Span {
  BlockRead read;
  int first = 0, last = 0;  ///< slots
};

std::vector<Span> spans_of(std::span<const std::vector<BlockRead>> slots) {
  std::map<int, int> last_read;  // by block
  std::vector<Span> spans;
  for (int slot = 0; slot < static_cast<int>(slots.size()); ++slot) {
    for (const BlockRead& read : slots[static_cast<size_t>(slot)]) {
      auto before = last_read.find(read.block);
      if (before != last_read.end()) spans.push_back({read, before->second, slot});
      last_read[read.block] = slot;
    }
  }
  std::stable_sort(spans.begin(), spans.end(), [](const Span& left, const Span& right) {
    return left.last != right.last ? left.last < right.last : left.first > right.first;
  });
  return spans;
}

/// A copy of a block in memory, from the slot that uploads it to the last that reads it.
struct Stay {
  int block = 0;
  ByteCount offset = 0, size = 0;
  int first = 0, last = 0;
};

/// Memory of one device over the slots of a list.
class StayPlacer {
 public:
  StayPlacer(int slot_count, const ResidencyLimits& limits)
      : end_slot_(slot_count - 1), limits_(limits) {}

  void add(const Span& span) {
    for (Stay& stay : stays_) {
      if (stay.block != span.read.block || stay.last != span.first) continue;
      Stay longer = stay;
      longer.last = span.last;
      if (is_free(longer, &stay)) stay = longer;
      return;  // its copy is there, so there is none to be brought elsewhere
    }
    Stay stay{span.read.block, 0, Arena::padded(span.read.size), span.first, span.last};
    if (std::optional<ByteCount> offset = find_place(stay)) {
      stay.offset = *offset;
      stays_.push_back(stay);
    }
  }
  const std::vector<Stay>& stays() const { return stays_; }

 private:
  static bool shares_memory(const Stay& left, const Stay& right) {
    return left.offset < right.offset + right.size && right.offset < left.offset + left.size;
  }
  bool follows_at_once(const Stay& left, const Stay& right) const {
    return limits_.next_begins_early && left.last == end_slot_ && right.first == 0;
  }
  bool shares_time(const Stay& left, const Stay& right) const {
    if (follows_at_once(left, right) || follows_at_once(right, left)) return true;
    return left.first < right.last + 2 && right.first < left.last + 2;
  }
  bool is_free(const Stay& stay, const Stay* itself) const {
    if (stay.offset + stay.size > limits_.capacity || follows_at_once(stay, stay)) return false;
    return std::none_of(stays_.begin(), stays_.end(), [&](const Stay& other) {
      return &other != itself && shares_memory(stay, other) && shares_time(stay, other);
    });
  }
  std::optional<ByteCount> find_place(Stay stay) const {
    std::vector<ByteCount> offsets = {0};
    for (const Stay& other : stays_) offsets.push_back(other.offset + other.size);
    std::sort(offsets.begin(), offsets.end());
    offsets.erase(std::unique(offsets.begin(), offsets.end()), offsets.end());
    std::optional<ByteCount> best;
    int best_since = -2;
    for (ByteCount offset : offsets) {
      stay.offset = offset;
      if (!is_free(stay, nullptr)) continue;
      int since = -1;  // the slot after which the place is free
      for (const Stay& other : stays_) {
        if (shares_memory(stay, other) && other.last < stay.first) {
          since = std::max(since, other.last);
        }
      }
      if (since <= best_since) continue;
      best_since = since;
      best = offset;
    }
    return best;
  }

  int end_slot_;
  ResidencyLimits limits_;
  std::vector<Stay> stays_;
};

}  // namespace

ResidencyPlan plan_residency(std::span<const std::vector<BlockRead>> slots,
                             const ResidencyLimits& limits) {
  ResidencyPlan plan;
  StayPlacer placer(static_cast<int>(slots.size()), limits);
  if (limits.capacity > 0) {
    for (const Span& span : spans_of(slots)) placer.add(span);
  }
  for (const std::vector<BlockRead>& reads : slots) plan.slots.emplace_back(reads.size());
  for (const Stay& stay : placer.stays()) {
    plan.used_bytes = std::max(plan.used_bytes, stay.offset + stay.size);
    for (int slot = stay.first; slot <= stay.last; ++slot) {
      const std::vector<BlockRead>& reads = slots[static_cast<size_t>(slot)];
      for (size_t index = 0; index < reads.size(); ++index) {
        if (reads[index].block != stay.block) continue;
        bool uploads = slot == stay.first;
        plan.slots[static_cast<size_t>(slot)][index] = {true, stay.offset, uploads,
                                                        slot == stay.last};
        if (!uploads) plan.saved_bytes += reads[index].size;
      }
    }
  }
  return plan;
}

}  // namespace stagecoach
