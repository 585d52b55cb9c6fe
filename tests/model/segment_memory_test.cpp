#include "model/segment_memory.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <string>

namespace stagecoach {

namespace {

bool contains(const std::vector<int>& list, int index) {
  return std::find(list.begin(), list.end(), index) != list.end();
}

/// A chain of declarations without segments.
struct RandomChain {
  std::vector<ActivationInfo> activations;
  std::vector<SegmentIo> ios;
  int64_t rows = 0;

  std::vector<const SegmentIo*> pointers() const {
    std::vector<const SegmentIo*> list;
    for (const SegmentIo& io : ios) list.push_back(&io);
    return list;
  }
  ByteCount size_bytes(int a) const {
    return rows * activations[a].columns * dtype_size_bytes(activations[a].dtype);
  }
};

/// Segments that read the newest activation and some older ones, write one that counts and some
/// extra ones, and save by chance: every shape of chain `validate_chain` takes.
class ChainMaker {
 public:
  explicit ChainMaker(uint64_t seed) : random_(seed) {}

  RandomChain make() {
    chain_.rows = pick(1, 40);
    add_activation();
    std::vector<int> readable = {0};
    int segments = pick(1, 9);
    for (int s = 0; s < segments; ++s) {
      SegmentIo io;
      io.reads = {readable.back()};
      for (int older : readable) {
        if (!contains(io.reads, older) && chance(3)) io.reads.push_back(older);
      }
      for (int extra = pick(0, 2); extra > 0; --extra) {
        io.writes.push_back(add_activation());
        if (chance(2)) io.scratch_gradients.push_back(io.writes.back());
      }
      // The last activation is the output, which nobody reads.
      io.writes.push_back(add_activation());
      readable.push_back(io.writes.back());
      io.weightless = chance(2);
      save_some(io, io.saved_for_input);
      if (!io.weightless) save_some(io, io.saved_for_weight);
      chain_.ios.push_back(io);
    }
    return chain_;
  }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(int one_in) { return pick(1, one_in) == 1; }

  int add_activation() {
    DType dtype = chance(3) ? DType::kF32 : DType::kBF16;
    chain_.activations.push_back(
        {"a" + std::to_string(chain_.activations.size()), dtype, pick(1, 70)});
    return static_cast<int>(chain_.activations.size()) - 1;
  }

  void save_some(const SegmentIo& io, std::vector<int>& saved) {
    for (const std::vector<int>* list : {&io.reads, &io.writes}) {
      for (int index : *list) {
        if (chance(3)) saved.push_back(index);
      }
    }
  }

  std::mt19937_64 random_;
  RandomChain chain_;
};

/// Memory that remembers, byte by byte, which tensor was written last.
class TaggedMemory {
 public:
  explicit TaggedMemory(ByteCount size) : tags_(static_cast<size_t>(size), -1) {}

  void write(const Slot& slot, ByteCount size, int tag) {
    EXPECT_EQ(slot.offset % kTensorAlignmentBytes, 0);
    ASSERT_LE(slot.offset + size, static_cast<ByteCount>(tags_.size()));
    std::fill_n(tags_.begin() + slot.offset, size, tag);
  }
  bool holds(const Slot& slot, ByteCount size, int tag) const {
    auto first = tags_.begin() + slot.offset;
    return std::all_of(first, first + size, [&](int found) { return found == tag; });
  }

 private:
  std::vector<int> tags_;
};

/// Walks a forward pass: whatever a segment reads or writes must be whole while it runs.
void check_forward(const RandomChain& chain, const ForwardLayout& layout, ByteCount saved_bytes,
                   bool has_output) {
  TaggedMemory workspace(layout.workspace_bytes);
  TaggedMemory saved(saved_bytes);
  auto memory = [&](int a) -> TaggedMemory* {
    if (layout.activations[a].place == Place::kWorkspace) return &workspace;
    return layout.activations[a].place == Place::kSaved ? &saved : nullptr;
  };
  auto expect_whole = [&](const std::vector<int>& list, size_t segment) {
    for (int a : list) {
      ASSERT_NE(layout.activations[a].place, Place::kNone) << "segment " << segment << " of " << a;
      if (memory(a) == nullptr) continue;
      EXPECT_TRUE(memory(a)->holds(layout.activations[a], chain.size_bytes(a), a))
          << "segment " << segment << ", activation " << a;
    }
  };
  for (size_t s = 0; s < chain.ios.size(); ++s) {
    if (!layout.runs[s]) continue;
    for (int a : chain.ios[s].writes) {
      if (memory(a) != nullptr) memory(a)->write(layout.activations[a], chain.size_bytes(a), a);
    }
    expect_whole(chain.ios[s].reads, s);
    expect_whole(chain.ios[s].writes, s);
  }
  // What is saved is whole at the end.
  for (size_t a = 0; a < chain.activations.size(); ++a) {
    if (layout.activations[a].place != Place::kSaved) continue;
    EXPECT_TRUE(saved.holds(layout.activations[a], chain.size_bytes(static_cast<int>(a)),
                            static_cast<int>(a)));
  }
  const Slot& output = layout.activations.back();
  if (has_output) {
    EXPECT_TRUE(output.place == Place::kOutput ||
                (output.place == Place::kSaved && layout.copies_output));
  } else {
    EXPECT_FALSE(layout.copies_output);
  }
}

/// Walks a backward pass in the engine's order.
class BackwardWalk {
 public:
  BackwardWalk(const RandomChain& chain, const BackwardLayout& layout)
      : chain_(chain), layout_(layout), memory_(layout.workspace_bytes) {}

  void input_part(int segment) {
    const SegmentIo& io = chain_.ios[segment];
    for (int a : io.reads) {
      // A gradient with a part in it already must not have lost it.
      if (later_reader(a, segment)) expect_whole(a, segment);
    }
    for (const std::vector<int>* list : {&io.reads, &io.scratch_gradients}) {
      for (int a : *list) {
        if (in_workspace(a)) memory_.write(layout_.gradients[a], chain_.size_bytes(a), a);
      }
    }
    for (int a : io.reads) expect_whole(a, segment);
    expect_written(segment);
  }

  void weight_part(int segment) {
    if (!chain_.ios[segment].weightless) expect_written(segment);
  }

 private:
  bool in_workspace(int a) const { return layout_.gradients[a].place == Place::kWorkspace; }
  bool later_reader(int a, int segment) const {
    for (size_t s = static_cast<size_t>(segment) + 1; s < chain_.ios.size(); ++s) {
      if (contains(chain_.ios[s].reads, a)) return true;
    }
    return false;
  }
  /// Gradients of what the segment wrote: of those that others read, and of its scratch.
  void expect_written(int segment) {
    const SegmentIo& io = chain_.ios[segment];
    for (int a : io.writes) {
      bool is_output = static_cast<size_t>(a) + 1 == chain_.activations.size();
      if (is_output || later_reader(a, segment) || contains(io.scratch_gradients, a)) {
        expect_whole(a, segment);
      }
    }
  }
  void expect_whole(int a, int segment) {
    ASSERT_NE(layout_.gradients[a].place, Place::kNone) << "segment " << segment << " of " << a;
    if (!in_workspace(a)) return;
    EXPECT_TRUE(memory_.holds(layout_.gradients[a], chain_.size_bytes(a), a))
        << "segment " << segment << ", gradient " << a;
  }

  const RandomChain& chain_;
  const BackwardLayout& layout_;
  TaggedMemory memory_;
};

TEST(SegmentMemory, live_tensors_never_overlap_in_random_chains) {
  int skipping = 0;
  int sharing = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomChain chain = ChainMaker(seed).make();
    std::vector<const SegmentIo*> ios = chain.pointers();
    Status valid = validate_chain(chain.activations, ios);
    ASSERT_TRUE(valid.is_ok()) << valid.to_string();
    ChainLayout layout = plan_chain(chain.activations, ios, chain.rows);
    check_forward(chain, layout.plain, layout.saved_bytes, true);
    check_forward(chain, layout.saving, layout.saved_bytes, true);
    check_forward(chain, layout.recomputing, layout.saved_bytes, false);
    int count = static_cast<int>(chain.ios.size());
    BackwardWalk whole(chain, layout.whole);
    for (int s = count - 1; s >= 0; --s) {
      whole.input_part(s);
      whole.weight_part(s);
    }
    BackwardWalk split(chain, layout.split);
    for (int s = count - 1; s >= 0; --s) split.input_part(s);
    for (int s = count - 1; s >= 0; --s) split.weight_part(s);
    ASSERT_FALSE(testing::Test::HasFailure());
    skipping += std::count(layout.recomputing.runs.begin(), layout.recomputing.runs.end(), 0) > 0;
    sharing += layout.whole.workspace_bytes < layout.split.workspace_bytes;
  }
  // The chains must be such that the interesting things happen.
  EXPECT_GT(skipping, 500);
  EXPECT_GT(sharing, 300);
}

TEST(SegmentMemory, early_stop_runs_no_segment_that_saved_tensors_do_not_need) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    RandomChain chain = ChainMaker(seed).make();
    ChainLayout layout = plan_chain(chain.activations, chain.pointers(), chain.rows);
    for (size_t s = 0; s < chain.ios.size(); ++s) {
      if (!layout.recomputing.runs[s]) continue;
      const SegmentIo& io = chain.ios[s];
      bool needed = false;
      for (int a : io.writes) {
        needed |= layout.kept[a].place == Place::kSaved;
        for (size_t t = s + 1; t < chain.ios.size(); ++t) {
          needed |= layout.recomputing.runs[t] && contains(chain.ios[t].reads, a);
        }
      }
      EXPECT_TRUE(needed) << "seed " << seed << ", segment " << s;
    }
  }
}

TEST(SegmentMemory, workspace_of_tensors_alive_in_turn_is_that_of_the_largest) {
  std::vector<WorkspaceRequest> requests = {{1000, 0, 1}, {500, 2, 3}, {2000, 4, 5}};
  WorkspacePlan plan = plan_workspace(requests);
  EXPECT_EQ(plan.size_bytes, 2048);
  EXPECT_EQ(plan.offsets, (std::vector<ByteCount>{0, 0, 0}));
}

TEST(SegmentMemory, workspace_fills_gaps_between_tensors_alive_longer) {
  // 0 and 2 live throughout; 1 leaves a hole that 3 fits into.
  std::vector<WorkspaceRequest> requests = {{512, 0, 9}, {256, 0, 4}, {300, 0, 9}, {200, 5, 9}};
  WorkspacePlan plan = plan_workspace(requests);
  EXPECT_EQ(plan.size_bytes, 512 + 512 + 256);
  EXPECT_EQ(plan.offsets[1], plan.offsets[3]);
}

TEST(SegmentMemory, kept_tensors_start_at_aligned_offsets) {
  std::vector<ActivationInfo> activations = {{"in", DType::kF32, 3},
                                             {"a", DType::kF32, 1},
                                             {"b", DType::kF32, 5},
                                             {"out", DType::kF32, 2}};
  SegmentIo first;
  first.reads = {0};
  first.writes = {1, 2};
  first.saved_for_input = {0, 1, 2};
  SegmentIo second;
  second.reads = {2};
  second.writes = {3};
  std::vector<const SegmentIo*> ios = {&first, &second};
  ChainLayout layout = plan_chain(activations, ios, 7);
  EXPECT_EQ(layout.kept[0].place, Place::kInput);
  EXPECT_EQ(layout.kept[1].offset, 0);
  EXPECT_EQ(layout.kept[2].offset, 256);
  EXPECT_EQ(layout.saved_bytes, 512);
  EXPECT_EQ(layout.kept[3].place, Place::kNone);
}

/// Chains that are refused, and the words that must be in the message.
TEST(SegmentMemory, refuses_chains_that_cannot_run) {
  std::vector<ActivationInfo> three = {
      {"in", DType::kF32, 2}, {"middle", DType::kF32, 2}, {"out", DType::kF32, 2}};
  auto io = [](std::vector<int> reads, std::vector<int> writes) {
    SegmentIo result;
    result.reads = std::move(reads);
    result.writes = std::move(writes);
    return result;
  };
  auto expect_refused = [&](std::vector<SegmentIo> ios, const std::string& words) {
    std::vector<const SegmentIo*> pointers;
    for (const SegmentIo& one : ios) pointers.push_back(&one);
    Status status = validate_chain(three, pointers);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << words;
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  };
  expect_refused({}, "no segments");
  expect_refused({io({1}, {2}), io({0}, {1})},
                 "segment 0 reads what nothing before it writes: "
                 "activation 1 'middle'");
  expect_refused({io({0}, {1}), io({1}, {1, 2})}, "writes what is already written");
  expect_refused({io({0}, {0, 1}), io({1}, {2})}, "writes what is already written: activation 0");
  expect_refused({io({0}, {3})}, "segment 0 writes what does not exist: activation 3");
  expect_refused({io({-1}, {1})}, "reads what does not exist: activation -1");
  expect_refused({io({0}, {2})}, "activation 1 'middle' is written by no segment");
  expect_refused({io({0}, {1}), io({0}, {2})}, "segment 0 writes nothing that is used");
  expect_refused({io({0}, {2}), io({2}, {1})}, "reads the output");
  expect_refused({io({0, 0}, {1}), io({1}, {2})}, "lists one twice");
  SegmentIo saves = io({0}, {1});
  saves.saved_for_weight = {2};
  expect_refused({saves, io({1}, {2})}, "saves what it neither reads nor writes: activation 2");
  SegmentIo scratch = io({1}, {2});
  scratch.scratch_gradients = {1};
  expect_refused({io({0}, {1}), scratch}, "scratch gradient of what it does not write");
  SegmentIo shared = io({0}, {1});
  shared.scratch_gradients = {1};
  expect_refused({shared, io({1}, {2})}, "scratch gradient that others write");
  three[1].columns = 0;
  expect_refused({io({0}, {1}), io({1}, {2})}, "activation 'middle' has 0 columns");
}

}  // namespace

}  // namespace stagecoach
