#include "tools/bandwidth/transfer_memory.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>
#include <utility>

#include "core/clock.h"
#include "core/random.h"
#include "tools/bandwidth/await.h"
#include "tools/bandwidth/pinned_memory.h"

namespace stagecoach {

namespace {

constexpr ByteCount kPieceBytes = kMiB;  ///< that one thread fills or compares at a time
constexpr ByteCount kWordBytes = 8;
constexpr int kPoison = 0xEE;
constexpr int64_t kPrepareLimitNs = 60'000'000'000;

ByteCount whole_words(ByteCount size) {
  return std::max<ByteCount>(size / kWordBytes, 1) * kWordBytes;
}

void for_pieces(TaskPool& pool, ByteCount size,
                const std::function<void(ByteCount, ByteCount)>& body) {
  pool.parallel_for((size + kPieceBytes - 1) / kPieceBytes, [&](int64_t piece) {
    ByteCount begin = piece * kPieceBytes;
    body(begin, std::min(kPieceBytes, size - begin));
  });
}

DataCheck compare_piece(const std::byte* expected, const std::byte* found, ByteCount begin,
                        ByteCount size) {
  DataCheck check;
  check.bytes = size;
  if (std::memcmp(expected + begin, found + begin, static_cast<size_t>(size)) == 0) return check;
  for (ByteCount place = begin; place < begin + size; ++place) {
    auto flipped = static_cast<uint8_t>(expected[place] ^ found[place]);
    if (flipped == 0) continue;
    if (check.first_wrong < 0) check.first_wrong = place;
    ++check.wrong_bytes;
    check.flipped_bits |= flipped;
  }
  return check;
}

}  // namespace

void fill_pattern(std::byte* data, ByteCount size, uint64_t seed, TaskPool& pool) {
  RandomKey key;
  key.seed = seed;
  for_pieces(pool, size, [&](ByteCount begin, ByteCount count) {
    fill_random_words(key, static_cast<uint64_t>(begin) / 4, count / 4,
                      reinterpret_cast<uint32_t*>(data + begin));
  });
}

DataCheck compare_bytes(const std::byte* expected, const std::byte* found, ByteCount size,
                        TaskPool& pool) {
  std::mutex mutex;
  DataCheck check;
  ByteCount first_wrong = size;
  for_pieces(pool, size, [&](ByteCount begin, ByteCount count) {
    DataCheck piece = compare_piece(expected, found, begin, count);
    std::lock_guard lock(mutex);
    if (piece.first_wrong >= 0) first_wrong = std::min(first_wrong, piece.first_wrong);
    check.add(piece);
  });
  if (check.wrong_bytes > 0) check.first_wrong = first_wrong;
  return check;
}

const char* link_direction_name(LinkDirection direction) {
  return direction == LinkDirection::kUp ? "up" : "down";
}

TransferMemory::TransferMemory(Device& device, ByteCount ring_bytes, MemoryKind host_kind,
                               uint64_t seed, TaskPool& pool,
                               std::shared_ptr<NodePlacement> placement)
    : device_(device),
      wanted_ring_bytes_(whole_words(ring_bytes)),
      ring_bytes_(wanted_ring_bytes_),
      host_kind_(host_kind),
      seed_(seed),
      pool_(pool),
      placement_(std::move(placement)) {}

Status TransferMemory::open_pinned(Side& side) {
  Allocation allocation;
  auto allocate = [&] { allocation = device_.allocate_pinned(ring_bytes_, "bandwidth"); };
  if (placement_ == nullptr) {
    allocate();
  } else {
    placement_->run(allocate);
  }
  STAGECOACH_ASSIGN_OR_RETURN(side.host,
                              require_pinned(std::move(allocation), device_, ring_bytes_));
  if (placement_ != nullptr && holds_data()) {
    placement_->verify(side.host->host_data(), ring_bytes_);
  }
  return Status::ok();
}

Status TransferMemory::open_side(Side& side) {
  STAGECOACH_ASSIGN_OR_RETURN(
      side.device, require_buffer(device_.allocate(ring_bytes_, "bandwidth"), device_, ring_bytes_,
                                  "bandwidth"));
  if (host_kind_ == MemoryKind::kHostPinned) return open_pinned(side);
  STAGECOACH_ASSIGN_OR_RETURN(side.pages, PageableMemory::create(ring_bytes_));
  if (!holds_data()) {
    // Nobody will read what a simulated device was given.
  } else if (placement_ != nullptr) {
    placement_->place(side.pages.data(), ring_bytes_);
  } else {
    // Untouched pages would be found only while copies are timed.
    for_pieces(pool_, ring_bytes_, [&](ByteCount begin, ByteCount size) {
      std::memset(side.pages.data() + begin, 1, static_cast<size_t>(size));
    });
  }
  Result<BufferHandle> wrapped =
      host_kind_ == MemoryKind::kHostRegistered
          ? device_.register_host(side.pages.data(), ring_bytes_, "bandwidth")
          : device_.wrap_pageable(side.pages.data(), ring_bytes_, "bandwidth");
  STAGECOACH_ASSIGN_OR_RETURN(side.host, std::move(wrapped));
  return Status::ok();
}

/// The pages last: they must outlive what was made of them.
void TransferMemory::close_side(Side& side) {
  side.host.reset();
  side.device.reset();
  side.pages = {};
}

Status TransferMemory::open_sides() {
  Status status = open_side(up_);
  if (status.is_ok()) status = open_side(down_);
  if (status.is_ok()) return status;
  close_side(up_);
  close_side(down_);
  return status;
}

Status TransferMemory::open() {
  if (is_open_) return Status::ok();
  STAGECOACH_ASSIGN_OR_RETURN(stream_, device_.create_stream({"check"}));
  for (;;) {
    Status status = open_sides();
    if (status.is_ok()) break;
    bool can_shrink =
        status.code() == StatusCode::kResourceExhausted && ring_bytes_ / 2 >= kLeastRing;
    if (!can_shrink) return status;
    if (shortage_.empty()) shortage_ = status.message();
    ring_bytes_ = whole_words(ring_bytes_ / 2);
  }
  if (holds_data()) STAGECOACH_RETURN_IF_ERROR(fill_sources());
  is_open_ = true;
  return Status::ok();
}

Status TransferMemory::fill_sources() {
  fill_pattern(up_.host->host_data(), ring_bytes_, seed_, pool_);
  // The device's side of downloads holds the same bytes.
  int64_t deadline_ns = RealClock::instance().now_ns() + kPrepareLimitNs;
  return run_now({down_.device->view(), up_.host->view(), "pattern"}, deadline_ns);
}

Status TransferMemory::run_now(const CopyRequest& request, int64_t deadline_ns) {
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint end, stream_->copy(request));
  return await_timepoint(device_, end, deadline_ns);
}

CopyRequest TransferMemory::request(LinkDirection direction, ByteCount offset,
                                    ByteCount size) const {
  if (direction == LinkDirection::kUp) {
    return {up_.device->slice(offset, size), up_.host->slice(offset, size), "bandwidth up"};
  }
  return {down_.host->slice(offset, size), down_.device->slice(offset, size), "bandwidth down"};
}

Status TransferMemory::poison(LinkDirection direction, ByteCount size, int64_t deadline_ns) {
  if (!holds_data()) return Status::ok();
  if (direction == LinkDirection::kUp) {
    STAGECOACH_ASSIGN_OR_RETURN(Timepoint end,
                                stream_->fill({up_.device->slice(0, size), kPoison, 1, "poison"}));
    return await_timepoint(device_, end, deadline_ns);
  }
  std::byte* host = down_.host->host_data();
  for_pieces(pool_, size, [host](ByteCount begin, ByteCount count) {
    std::memset(host + begin, kPoison, static_cast<size_t>(count));
  });
  return Status::ok();
}

Result<DataCheck> TransferMemory::check(LinkDirection direction, ByteCount size,
                                        int64_t deadline_ns) {
  if (!holds_data()) return DataCheck{};
  const std::byte* expected = up_.host->host_data();
  if (direction == LinkDirection::kUp) {
    // Downloads land where they land anyway, and are compared before uploads are.
    STAGECOACH_RETURN_IF_ERROR(
        run_now({down_.host->slice(0, size), up_.device->slice(0, size), "check"}, deadline_ns));
  }
  return compare_bytes(expected, down_.host->host_data(), size, pool_);
}

}  // namespace stagecoach
