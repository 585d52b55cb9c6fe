#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "backends/gpu/gpu_error_words.h"
#include "core/bytes.h"
#include "core/status.h"
#include "hal/ring_queue.h"

namespace stagecoach {

class GpuStreamCell;

/// What a stream has done; counted when submitted and settled when a mark behind it is passed.
struct GpuStreamTotals {
  int64_t kernels = 0;
  int64_t copies = 0;
  ByteCount bytes_up = 0;
  ByteCount bytes_down = 0;

  GpuStreamTotals& operator+=(const GpuStreamTotals& other);
};

/// One recording of a driver event. Recording an event again takes another mark, so that those who
/// ask about the earlier place are not answered for the later one.
/// Thread rule: any thread, but for the fields set before it is shared.
class GpuMark {
 public:
  virtual ~GpuMark() = default;

  /// Whether the mark has been passed, from the driver; remembers a yes.
  Result<bool> has_passed();
  const std::shared_ptr<GpuStreamCell>& cell() const { return cell_; }
  uint64_t sequence() const { return sequence_; }

 protected:
  GpuMark() = default;
  virtual Result<bool> ask_driver() = 0;
  /// Back to the pool: nobody refers to the mark any more.
  virtual void recycle() = 0;

 private:
  friend class GpuMarkRef;

  std::atomic<int> references_{0};
  std::atomic<bool> passed_{false};
  std::shared_ptr<GpuStreamCell> cell_;
  uint64_t sequence_ = 0;
  GpuStreamTotals totals_;
};

/// Shared owner of a mark.
class GpuMarkRef {
 public:
  GpuMarkRef() = default;
  /// First reference to a mark just taken from its pool, to stand behind `sequence`.
  GpuMarkRef(GpuMark& mark, std::shared_ptr<GpuStreamCell> cell, uint64_t sequence,
             const GpuStreamTotals& totals);
  GpuMarkRef(const GpuMarkRef& other);
  GpuMarkRef(GpuMarkRef&& other) noexcept;
  GpuMarkRef& operator=(GpuMarkRef other) noexcept;
  ~GpuMarkRef();

  GpuMark* get() const { return mark_; }
  GpuMark* operator->() const { return mark_; }

 private:
  GpuMark* mark_ = nullptr;
};

/// What a stream shares with its marks and with those who wait for them: its failure, which flows
/// to every stream that waits for a mark not yet passed, and what it has finished. A card cannot
/// tell one stream that another was abandoned, so the host does.
/// Thread rule: any thread.
class GpuStreamCell {
 public:
  /// `site` names device and stream in failures that kernels report.
  explicit GpuStreamCell(FailureSite site) : site_(std::move(site)) {}

  GpuErrorWords& error_words() { return error_words_; }
  /// Fails the stream when an operation up to `sequence`, all of which have finished, reported an
  /// error.
  Status check_error_words(uint64_t sequence);
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  /// The first failure, or ok.
  Status failure() const;
  /// Keeps `status` unless there is a failure, wakes sleepers, fails the waiting streams.
  void fail(const Status& status);
  /// Makes `waiter` fail too if this stream fails before `mark` is passed.
  void add_waiter(GpuMarkRef mark, std::shared_ptr<GpuStreamCell> waiter);
  /// The stream is gone: nobody waits for it any more.
  void close();

  /// Blocks for `duration_ns`, less when the stream fails meanwhile.
  void sleep_unless_failed(int64_t duration_ns) const;

  void note_finished(uint64_t sequence, const GpuStreamTotals& totals);
  GpuStreamTotals finished() const;
  /// The last operation known to have finished.
  uint64_t finished_sequence() const;
  /// `time_ns` of the mark at `sequence`, raised where a clock correction would let time go back
  /// along the stream.
  int64_t monotonic(uint64_t sequence, int64_t time_ns);

 private:
  struct Waiter {
    GpuMarkRef mark;
    std::shared_ptr<GpuStreamCell> cell;
  };
  GpuMarkRef oldest_awaited();

  const FailureSite site_;
  GpuErrorWords error_words_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable failure_noticed_;
  Status failure_;
  RingQueue<Waiter> waiters_;  // in the order of their marks' sequences, mostly
  bool closed_ = false;

  mutable std::mutex progress_mutex_;  // a leaf: marks settle whatever else is locked
  uint64_t finished_sequence_ = 0;
  GpuStreamTotals finished_;
  uint64_t latest_sequence_ = 0;
  int64_t latest_ns_ = 0;
};

}  // namespace stagecoach
