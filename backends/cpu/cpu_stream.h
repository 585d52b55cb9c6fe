#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "backends/cpu/cpu_device_state.h"
#include "backends/cpu/cpu_entry.h"
#include "backends/cpu/wake_signal.h"
#include "hal/stream.h"

namespace stagecoach {

class CpuDevice;

/// A stream of a CPU device: a queue and one worker thread that runs it in order. The worker also
/// plays the copy: it takes the engine's turn, moves the bytes and keeps the turn until the
/// nominal end. Thread rule: as Stream.
class CpuStream final : public Stream {
 public:
  CpuStream(CpuDevice& owner, const StreamOptions& options);
  /// Waits for queued work, unless the stream has failed.
  ~CpuStream() override;

  /// Queues a validated math operation; from Ops::do_run only.
  Status enqueue_op(const OpCall& call);
  /// The failure noticed by the worker, or ok.
  Status worker_failure() const;

 private:
  Status do_copy(const CopyRequest& request) override;
  Status do_fill(const FillRequest& request) override;
  Status do_launch(const LaunchRequest& request) override;
  Status do_record(Event& event) override;
  Status do_wait(const Event& event) override;
  Status do_synchronize() override;
  void do_abandon(const Status& status) override;
  Status do_failure() const override { return worker_failure(); }
  bool do_is_idle() override;

  /// Duration of an operation on the nominal timeline.
  struct Span {
    int64_t start_ns;
    int64_t end_ns;
    int64_t overrun_ns;
  };
  /// The operation that a finished one hands its engine to.
  struct NextTurn {
    IssueOrderEngine* engine = nullptr;
    uint64_t ticket = 0;
  };

  CpuEntry new_entry(std::string_view verb, const Label& label) const;
  Status push(CpuEntry entry);
  /// Keeps the first failure, drops what is queued and wakes everyone who waits for it.
  void fail(const Status& status);
  bool is_broken() const { return is_broken_.load(std::memory_order_acquire); }

  void work();
  bool take_next();
  Status execute();
  void finish_current(const Status& status);
  Status wait_for_record(EventRecord& record);
  void complete_record(EventRecord& record);
  Status occupy_and_run();
  bool take_turns();
  bool wait_for_turn(IssueOrderEngine& engine, IssueOrderEngine::Turn& turn);
  void end_turns();
  NextTurn peek_next();
  Status run_work();
  Span place_on_timeline(int64_t began_ns, int64_t ended_ns) const;
  void count(const Span& span);
  void sleep_until_nominal(int64_t end_ns);

  CpuDevice& cpu_device_;
  CpuDeviceState& state_;

  mutable WakeSignal signal_;  // its mutex guards the members down to the blank line
  RingQueue<CpuEntry> queue_;
  Status broken_;
  bool running_ = false;
  bool stopping_ = false;
  uint64_t queued_count_ = 0;
  uint64_t finished_count_ = 0;

  std::atomic<bool> is_broken_{false};
  // The worker's own.
  CpuEntry current_;
  IssueOrderEngine::Turn turn_;
  IssueOrderEngine::Turn second_turn_;
  IssueOrderEngine* announced_ = nullptr;  // engine where turn_ waits for the next operation
  int64_t nominal_end_ns_ = 0;             // of the last operation
  std::thread worker_;
};

}  // namespace stagecoach
