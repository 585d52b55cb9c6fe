#include "memory/residency.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <random>

#include "memory/arena.h"

namespace stagecoach {
namespace {

using Slots = std::vector<std::vector<BlockRead>>;
constexpr ByteCount kBlock = 1024;

/// Every slot reads what it should, from where it was brought to and nobody has written since.
void expect_consistent(const Slots& slots, const ResidencyPlan& plan,
                       const ResidencyLimits& limits) {
  ASSERT_EQ(plan.slots.size(), slots.size());
  struct Held {
    ByteCount offset, size;
    int last_read;
    bool has_ended;
  };
  std::map<int, Held> held;
  ByteCount saved = 0, used = 0;
  int count = static_cast<int>(slots.size());
  for (int at = 0; at < 2 * count; ++at) {  // the list begins anew
    if (at % count == 0) {
      for (auto& [block, copy] : held) EXPECT_TRUE(copy.has_ended);
    }
    const auto& reads = slots[static_cast<size_t>(at % count)];
    ASSERT_EQ(plan.slots[static_cast<size_t>(at % count)].size(), reads.size());
    for (size_t index = 0; index < reads.size(); ++index) {
      const BlockCopy& copy = plan.slots[static_cast<size_t>(at % count)][index];
      if (!copy.is_kept) {
        EXPECT_TRUE(copy.uploads);
        continue;
      }
      ByteCount size = Arena::padded(reads[index].size);
      EXPECT_LE(copy.offset + size, limits.capacity);
      used = std::max(used, copy.offset + size);
      int block = reads[index].block;
      if (copy.uploads) {
        for (const auto& [other, there] : held) {
          bool overlaps =
              there.offset < copy.offset + size && copy.offset < there.offset + there.size;
          if (!overlaps) continue;
          EXPECT_TRUE(there.has_ended);
          bool is_new_list = at == count && !limits.next_begins_early;
          EXPECT_LE(there.last_read + (is_new_list ? 1 : 2), at)
              << "an upload would wait for the slot before";
        }
        held[block] = {copy.offset, size, at, false};
      } else {
        ASSERT_TRUE(held.contains(block));
        EXPECT_FALSE(held[block].has_ended);
        EXPECT_EQ(held[block].offset, copy.offset);
        if (at < count) saved += reads[index].size;
      }
      held[block].last_read = at;
      held[block].has_ended = copy.is_last;
    }
  }
  EXPECT_EQ(saved, plan.saved_bytes);
  EXPECT_EQ(used, plan.used_bytes);
}

/// The most spans that can be kept in `places` of one size, by trying all.
int most_kept(const Slots& slots, int places, bool next_begins_early) {
  struct Span {
    int block, first, last;
  };
  std::vector<Span> spans;
  std::map<int, int> before;
  int end = static_cast<int>(slots.size()) - 1;
  for (int slot = 0; slot <= end; ++slot) {
    for (const BlockRead& read : slots[static_cast<size_t>(slot)]) {
      if (before.contains(read.block)) spans.push_back({read.block, before[read.block], slot});
      before[read.block] = slot;
    }
  }
  std::vector<std::vector<Span>> taken(static_cast<size_t>(places));
  auto at_once = [&](const Span& left, const Span& right) {
    return next_begins_early && left.last == end && right.first == 0;
  };
  auto meet = [&](const Span& left, const Span& right) {
    return at_once(left, right) || at_once(right, left) ||
           (left.first < right.last + 2 && right.first < left.last + 2);
  };
  int best = 0;
  std::function<void(size_t, int)> go = [&](size_t index, int kept) {
    best = std::max(best, kept);
    if (index == spans.size() || kept + static_cast<int>(spans.size() - index) <= best) return;
    const Span& span = spans[index];
    bool continues = false;
    for (auto& place : taken) {
      for (size_t of = 0; of < place.size(); ++of) {
        if (place[of].block != span.block || place[of].last != span.first) continue;
        continues = true;
        Span longer{span.block, place[of].first, span.last};
        bool is_free = !at_once(longer, longer);
        for (size_t other = 0; other < place.size(); ++other) {
          is_free = is_free && (other == of || !meet(longer, place[other]));
        }
        if (!is_free) continue;
        Span old = std::exchange(place[of], longer);
        go(index + 1, kept + 1);
        place[of] = old;
      }
    }
    for (auto& place : taken) {
      if (continues || at_once(span, span)) break;
      if (std::any_of(place.begin(), place.end(), [&](const Span& s) { return meet(span, s); })) {
        continue;
      }
      place.push_back(span);
      go(index + 1, kept + 1);
      place.pop_back();
    }
    go(index + 1, kept);
  };
  // By ends, so that copies are continued in order.
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& left, const Span& right) { return left.last < right.last; });
  go(0, 0);
  return best;
}

/// One device that goes forward and back through `layers`, one a slot, the last ones fused.
Slots there_and_back(int layers, int rounds) {
  Slots slots;
  for (int round = 0; round < rounds; ++round) {
    for (int layer = 0; layer < layers; ++layer) slots.push_back({{layer, kBlock}});
    for (int layer = layers - 2; layer >= 0; --layer) slots.push_back({{layer, kBlock}});
  }
  return slots;
}

TEST(Residency, OneDeviceKeepsAsMuchAsCanBeKept) {
  for (int rounds : {1, 2, 3}) {
    for (int layers : {2, 3, 4}) {
      Slots slots = there_and_back(layers, rounds);
      for (int places = 1; places <= layers; ++places) {
        for (bool early : {false, true}) {
          ResidencyLimits limits{places * kBlock, early};
          ResidencyPlan plan = plan_residency(slots, limits);
          expect_consistent(slots, plan, limits);
          EXPECT_EQ(plan.saved_bytes / kBlock, most_kept(slots, places, early))
              << rounds << " rounds, " << layers << " layers, " << places << " places, " << early;
        }
      }
    }
  }
}

// 24 layers, of which 8 fit: 8 at each of the three turns of two rounds, of
// which the last layer's two slots are one.
TEST(Residency, EveryTurnSparesWhatFits) {
  Slots slots = there_and_back(24, 2);
  EXPECT_EQ(plan_residency(slots, {24 * kBlock}).saved_bytes, (23 + 24 + 23) * kBlock);
  ResidencyPlan plan = plan_residency(slots, {8 * kBlock});
  expect_consistent(slots, plan, {8 * kBlock});
  EXPECT_GE(plan.saved_bytes, (3 * 8 - 3) * kBlock);
  EXPECT_LE(plan.saved_bytes, 3 * 8 * kBlock);
}

TEST(Residency, RandomListsOfOneSizeAreNearTheMost) {
  std::mt19937 random(7);
  auto below = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  int kept = 0, most = 0;
  for (int trial = 0; trial < 400; ++trial) {
    int blocks = 2 + below(3), count = 3 + below(6), places = 1 + below(3);
    Slots slots(static_cast<size_t>(count));
    for (auto& reads : slots) {
      for (int block = 0; block < blocks; ++block) {
        if (reads.size() < 2 && below(2) == 0) reads.push_back({block, kBlock});
      }
    }
    ResidencyLimits limits{places * kBlock, below(2) == 0};
    ResidencyPlan plan = plan_residency(slots, limits);
    expect_consistent(slots, plan, limits);
    int best = most_kept(slots, places, limits.next_begins_early);
    EXPECT_LE(plan.saved_bytes / kBlock, best);
    kept += static_cast<int>(plan.saved_bytes / kBlock);
    most += best;
  }
  EXPECT_GT(most, 400);
  EXPECT_GE(kept, 95 * most / 100);
}

TEST(Residency, BlocksOfManySizesAreConsistent) {
  std::mt19937 random(11);
  auto below = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  for (int trial = 0; trial < 200; ++trial) {
    int blocks = 2 + below(10), count = 3 + below(30);
    std::vector<ByteCount> sizes;
    for (int block = 0; block < blocks; ++block) sizes.push_back(1 + below(5000));
    Slots slots(static_cast<size_t>(count));
    for (auto& reads : slots) {
      for (int block = 0; block < blocks; ++block) {
        if (below(4) == 0) reads.push_back({block, sizes[static_cast<size_t>(block)]});
      }
    }
    ResidencyLimits limits{below(20'000), below(2) == 0};
    expect_consistent(slots, plan_residency(slots, limits), limits);
  }
}

TEST(Residency, NothingIsKeptWithoutMemoryOrASecondRead) {
  EXPECT_EQ(plan_residency(there_and_back(4, 1), {}).saved_bytes, 0);
  EXPECT_EQ(plan_residency(there_and_back(4, 1), {kBlock - 1}).saved_bytes, 0);
  Slots once = {{{0, kBlock}}, {{1, kBlock}}};
  ResidencyPlan plan = plan_residency(once, {10 * kBlock});
  EXPECT_EQ(plan.saved_bytes, 0);
  EXPECT_EQ(plan.used_bytes, 0);
}

}  // namespace
}  // namespace stagecoach
