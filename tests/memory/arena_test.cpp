#include "memory/arena.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "backends/register_backends.h"
#include "memory/budget.h"
#include "memory/host_state.h"
#include "testing/decorated_backend.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct ArenaTest : ::testing::Test {
  Device& open(const std::string& text) {
    devices = registry.open_devices(text).value();
    return *devices[0];
  }
  BackendRegistry registry = built_in_backends();
  std::vector<std::unique_ptr<Device>> devices;
};

TEST_F(ArenaTest, AllIsPinnedWhereTheSystemAllowsIt) {
  Arena arena = Arena::create_pinned(open("cpu:1"), 10'000, "test").value();
  BufferView travels = arena.take(4000), stays = arena.take(4000, PieceUse::kStays);
  EXPECT_EQ(travels.buffer->kind(), MemoryKind::kHostPinned);
  EXPECT_EQ(stays.buffer, travels.buffer);
  EXPECT_EQ(arena.pinning().asked, 10'000);
  EXPECT_EQ(arena.pinning().pinned, 10'000);
  EXPECT_EQ(arena.pinning().slow, 0);
  EXPECT_EQ(describe_pinning(arena.pinning(), {}), "");
}

// Field report 59: what travels gets what can be pinned; the rest is pageable, and is said.
TEST_F(ArenaTest, WhatCannotBePinnedIsPageable) {
  constexpr ByteCount kPiece = 64 * kKiB;
  Device& device = open("cpu:1[pinned=512K]");
  {
    // Half of the memory never travels, so nothing is lost.
    Arena arena = Arena::create_pinned(device, 16 * kPiece, "test").value();
    for (int piece = 0; piece < 8; ++piece) {
      EXPECT_EQ(arena.take(kPiece, PieceUse::kStays).buffer->kind(), MemoryKind::kHostPageable);
      EXPECT_EQ(arena.take(kPiece).buffer->kind(), MemoryKind::kHostPinned);
    }
    EXPECT_EQ(arena.pinning().pinned, 512 * kKiB);
    EXPECT_EQ(arena.pinning().slow, 0);
    EXPECT_EQ(describe_pinning(arena.pinning(), {}), "");
  }
  Arena arena = Arena::create_pinned(device, 16 * kPiece, "test").value();
  for (int piece = 0; piece < 16; ++piece) {
    BufferView view = arena.take(kPiece);
    EXPECT_EQ(view.buffer->kind(), piece < 8 ? MemoryKind::kHostPinned : MemoryKind::kHostPageable);
    std::memset(view.host_data(), piece, kPiece);
  }
  EXPECT_EQ(arena.pinning().asked, kMiB);
  EXPECT_EQ(arena.pinning().pinned, 512 * kKiB);
  EXPECT_EQ(arena.pinning().slow, 512 * kKiB);

  HostLimits limits;
  std::string text = describe_pinning(arena.pinning(), limits);
  EXPECT_THAT(text, HasSubstr("pinned host memory: 512.00 KiB of 1.00 MiB could be had"));
  EXPECT_THAT(text, Not(HasSubstr("ulimit")));
  limits.lockable_bytes = 64 * kKiB;
  EXPECT_THAT(describe_pinning(arena.pinning(), limits),
              HasSubstr("raise ulimit -l, which is 64.00 KiB"));
}

/// A system that pins no piece of more than `most` bytes, and counts what it was asked for.
class PieceLimit final : public Interceptor {
 public:
  explicit PieceLimit(ByteCount most) : most_(most) {}
  Verdict before(const VerbCall& call) override {
    Verdict verdict;
    if (call.verb != verbs::kAllocatePinned) return verdict;
    ++asked_;
    if (call.size_bytes > most_) verdict.kind = Verdict::Kind::kExhaust;
    return verdict;
  }
  void after(const VerbCall&, const Status&) override {}
  int asked() const { return asked_; }

 private:
  ByteCount most_;
  int asked_ = 0;
};

// Field report 59: systems that limit single pieces pin all the same, piece by piece.
TEST_F(ArenaTest, ALimitOfSinglePiecesIsMetWithSeveral) {
  auto limit = std::make_shared<PieceLimit>(100 * kKiB);
  devices = decorate_devices(registry.open_devices("cpu:1").value(), limit);
  Arena arena = Arena::create_pinned(*devices[0], kMiB, "test").value();
  for (int piece = 0; piece < 10; ++piece) {
    EXPECT_EQ(arena.take(64 * kKiB).buffer->kind(), MemoryKind::kHostPinned) << piece;
  }
  EXPECT_EQ(arena.take(128 * kKiB).buffer->kind(), MemoryKind::kHostPageable);
  EXPECT_EQ(arena.take(128 * kKiB).buffer->kind(), MemoryKind::kHostPageable);
  EXPECT_EQ(arena.take(100 * kKiB).buffer->kind(), MemoryKind::kHostPinned);
  // A refusal is asked for twice (after freeing what is retired): all of it and a piece that is too
  // large, whose size is not asked for again.
  EXPECT_EQ(limit->asked(), 2 + 10 + 2 + 1);
}

TEST_F(ArenaTest, NothingPinnedAtAllWorksToo) {
  Arena arena = Arena::create_pinned(open("cpu:1[pinned=1]"), 3 * kMiB, "test").value();
  EXPECT_EQ(arena.pinning().pinned, 0);
  BufferView view = arena.take(3 * kMiB);
  EXPECT_EQ(view.buffer->kind(), MemoryKind::kHostPageable);
  EXPECT_EQ(view.host_data()[3 * kMiB - 1], std::byte{0});
}

// The error of a host without the memory names it, not the device's.
TEST_F(ArenaTest, AHostWithoutTheMemoryIsAnError) {
  Result<Arena> arena = Arena::create_pinned(open("cpu:1[pinned=1K]"), ByteCount{1} << 50, "much");
  ASSERT_EQ(arena.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(arena.status().message(), HasSubstr("host memory for 'much'"));
  EXPECT_THAT(arena.status().message(), HasSubstr("1125899906842624 bytes"));
}

/// Counts registrations and refuses one of them.
class RegistrationCount final : public Interceptor {
 public:
  explicit RegistrationCount(int refused = -1, Status refusal = resource_exhausted("no more"))
      : refused_(refused), refusal_(std::move(refusal)) {}
  Verdict before(const VerbCall& call) override {
    Verdict verdict;
    if (call.verb != verbs::kRegisterHost) return verdict;
    if (asked_++ == refused_) {
      verdict.kind = Verdict::Kind::kRefuse;
      verdict.status = refusal_;
    }
    return verdict;
  }
  void after(const VerbCall&, const Status&) override {}
  int asked() const { return asked_; }

 private:
  int refused_;
  Status refusal_;
  std::atomic<int> asked_{0};
};

TEST(HostPieces, CoverEveryPartOnceOnPagesOfTheirOwn) {
  std::vector<ByteCount> parts = {100, 9000, 300, 50'000, 1, 256, 8192};
  std::vector<HostPiece> pieces = cut_into_pieces(parts, 256, 8192);
  ASSERT_EQ(pieces.size(), 3u);
  ByteCount end = 0, total = 0;
  for (const HostPiece& piece : pieces) {
    EXPECT_EQ(piece.start % 4096, 0);
    EXPECT_GE(piece.start, end);
    EXPECT_LT(piece.start - end, 4096);
    end = piece.start + piece.size;
    total += piece.size;
  }
  EXPECT_EQ(pieces[0].size, 256 + 9216);
  EXPECT_EQ(pieces[1].size, 512 + 50'176);
  EXPECT_EQ(total, 256 + 9216 + 512 + 50'176 + 256 + 256 + 8192);
}

TEST_F(ArenaTest, LargeMemoryIsPinnedInPiecesByThreads) {
  constexpr ByteCount kPart = 100'000;
  auto count = std::make_shared<RegistrationCount>();
  devices = decorate_devices(registry.open_devices("cpu:1").value(), count);
  auto pool = TaskPool::create(3);
  std::vector<PinProgress> seen;
  PinSetup setup{pool.get(),
                 [&](const PinProgress& progress) {
                   seen.push_back(progress);
                   return true;
                 },
                 2 * kPart};
  std::vector<ByteCount> parts(20, kPart);
  Arena arena = Arena::create_registered(*devices[0], parts, "test", setup).value();
  EXPECT_EQ(count->asked(), 10);
  EXPECT_EQ(arena.pinning().pinned, 20 * Arena::padded(kPart));
  std::set<std::byte*> starts;
  for (ByteCount part : parts) {
    BufferView view = arena.take(part);
    EXPECT_EQ(view.buffer->kind(), MemoryKind::kHostRegistered);
    EXPECT_TRUE(std::all_of(view.host_data(), view.host_data() + view.size,
                            [](std::byte value) { return value == std::byte{0}; }));
    std::memset(view.host_data(), 1, static_cast<size_t>(view.size));
    starts.insert(view.host_data());
  }
  EXPECT_EQ(starts.size(), 20u);
  ASSERT_EQ(seen.size(), 10u);
  for (size_t piece = 0; piece < seen.size(); ++piece) {
    EXPECT_EQ(seen[piece].done, static_cast<ByteCount>(piece + 1) * 2 * Arena::padded(kPart));
    EXPECT_EQ(seen[piece].total, 20 * Arena::padded(kPart));
  }
}

// A refusal in the middle gives back what was pinned before it, so that all of the limit is there
// for what travels.
TEST_F(ArenaTest, APieceThatIsRefusedGivesBackTheOthers) {
  constexpr ByteCount kPart = 64 * kKiB;
  auto count = std::make_shared<RegistrationCount>(3);
  devices = decorate_devices(registry.open_devices("cpu:1[pinned=512K]").value(), count);
  std::vector<ByteCount> parts(16, kPart);
  Arena arena =
      Arena::create_registered(*devices[0], parts, "test", {nullptr, nullptr, kPart}).value();
  EXPECT_EQ(count->asked(), 4);
  EXPECT_EQ(arena.pinning().pinned, 0);
  for (int piece = 0; piece < 16; ++piece) {
    BufferView view = arena.take(kPart, piece % 2 == 0 ? PieceUse::kTravels : PieceUse::kStays);
    EXPECT_EQ(view.buffer->kind(),
              piece % 2 == 0 ? MemoryKind::kHostPinned : MemoryKind::kHostPageable);
    EXPECT_EQ(view.host_data()[kPart - 1], std::byte{0});
  }
  EXPECT_EQ(arena.pinning().pinned, 512 * kKiB);
  EXPECT_EQ(arena.pinning().slow, 0);
}

// What cannot be locked is pinned as far as that goes; a device that fails ends the run.
TEST_F(ArenaTest, RefusalsAreMetAndFailuresAreNot) {
  std::vector<ByteCount> parts(4, 64 * kKiB);
  for (const Status& status :
       {invalid_argument("no such range"), unimplemented("no"), internal_error("broken")}) {
    auto count = std::make_shared<RegistrationCount>(1, status);
    devices = decorate_devices(registry.open_devices("cpu:1").value(), count);
    Result<Arena> arena =
        Arena::create_registered(*devices[0], parts, "test", {nullptr, nullptr, 64 * kKiB});
    EXPECT_EQ(arena.is_ok(), status.code() != StatusCode::kInternal) << status.to_string();
    if (arena.is_ok()) {
      EXPECT_EQ(arena->pinning().pinned, 4 * 64 * kKiB);
    }
  }
}

TEST_F(ArenaTest, PinningEndsBetweenPiecesWhenTheWatchSaysSo) {
  auto count = std::make_shared<RegistrationCount>();
  devices = decorate_devices(registry.open_devices("cpu:1[pinned=1M]").value(), count);
  std::vector<ByteCount> parts(16, 64 * kKiB);
  auto watch = [](const PinProgress& progress) { return progress.done < 3 * 64 * kKiB; };
  Result<Arena> arena =
      Arena::create_registered(*devices[0], parts, "test", {nullptr, watch, 64 * kKiB});
  EXPECT_EQ(arena.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(count->asked(), 3);
  // Nothing is left pinned.
  EXPECT_EQ(devices[0]->allocate_pinned(kMiB, "all").outcome, AllocationOutcome::kOk);
}

// Of a state that a quarter of can be pinned, nearly all that travels is: 4 of 14 bytes in bf16.
TEST_F(ArenaTest, HostStatesPinWhatTravels) {
  std::vector<BlockLayout> blocks;
  for (int block = 0; block < 20; ++block) blocks.push_back({"block", 10'000, 1});
  Device& device = open("cpu:1[pinned=690000]");
  auto state = HostState::create(device, blocks, {DType::kBF16, 1, 1}).value();
  Pinning pinning = state->pinning();
  EXPECT_EQ(pinning.asked, state->bytes().total());
  EXPECT_LE(pinning.pinned, pinning.asked / 4);
  ByteCount travels = 20 * 2 * Arena::padded(20'000);
  EXPECT_EQ(pinning.pinned / 20'000 * Arena::padded(20'000) + pinning.slow, travels);
  EXPECT_LT(pinning.slow, travels / 5);
  std::vector<float> values(10'000, 1.5f), read(10'000);
  ASSERT_TRUE(state->write_parameters(19, 0, values).is_ok());
  state->read_parameters(19, 0, read);
  EXPECT_EQ(read, values);
}

}  // namespace
}  // namespace stagecoach
