#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "backends/sim/sim_machine.h"
#include "backends/sim/sim_record.h"
#include "hal/stream.h"

namespace stagecoach {

class SimDevice;

/// A stream of a simulated card: a queue whose operations only take time.
/// Thread rule: the one thread of the simulation.
class SimStream final : public Stream {
 public:
  SimStream(SimDevice& owner, const StreamOptions& options);
  /// Whatever is queued is dropped: nobody is left to see it.
  ~SimStream() override;

  /// Queues a kernel of `duration_ns`; from Ops::do_run.
  Status enqueue_kernel(int64_t duration_ns);

 private:
  struct Entry {
    enum class Kind : uint8_t { kKernel, kCopy, kRecord, kWait } kind = Kind::kKernel;
    int64_t issued_ns = 0;  ///< when it reached the stream: it cannot begin before
    uint64_t sequence = 0;
    int64_t duration_ns = 0;            ///< kernel
    double bytes = 0;                   ///< copy
    std::vector<int> path;              ///< copy
    bool is_up = false;                 ///< copy: which engine
    std::shared_ptr<SimRecord> record;  ///< record, wait
  };

  Status do_copy(const CopyRequest& request) override;
  Status do_fill(const FillRequest& request) override;
  Status do_launch(const LaunchRequest& request) override;
  Status do_record(Event& event) override;
  Status do_wait(const Event& event) override;
  Status do_synchronize() override;
  void do_abandon(const Status& status) override;
  Status do_failure() const override { return failure_; }

  void push(Entry entry);
  /// Goes on with the queue as far as it gets.
  void serve();
  void serve_at(int64_t time_ns);
  /// Begins the head; true when it was over at once.
  bool begin(Entry& entry);
  void begin_kernel(const Entry& entry);
  void begin_copy(const Entry& entry);
  void finish_head();
  void fail(const Status& status);
  EventOrder order(EventOrder::Kind kind, uint64_t sequence) const;
  /// `action` as long as this stream lives and has not failed.
  std::function<void()> guarded(std::function<void()> action);

  SimDevice& sim_device_;
  SimMachine& machine_;
  std::deque<Entry> queue_;
  bool is_running_ = false;
  bool is_serving_ = false;
  Status failure_;
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);
};

}  // namespace stagecoach
