#include "scheduler/transfer_probe.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "core/clock.h"

namespace stagecoach {

namespace {

CopyRequest request_of(const BufferView& on_device, const BufferView& on_host, bool up,
                       const char* label) {
  return up ? CopyRequest{on_device, on_host, label} : CopyRequest{on_host, on_device, label};
}

Result<std::unique_ptr<Event>> timing_event(Device& device) {
  return device.create_event({.timing = true});
}

/// Wakes up late by less than a sleep does.
void wait_exactly_until_ns(int64_t deadline_ns) {
  constexpr int64_t kSleepsLateNs = 150'000;
  sleep_until_ns(deadline_ns - kSleepsLateNs);
  while (RealClock::instance().now_ns() < deadline_ns) {
  }
}

/// Looks again and again where there is a deadline: a driver that hangs would not let go of a
/// thread that waits in it.
Status wait_for(Timepoint timepoint, const Device& device, const TransferProbe& probe) {
  constexpr int64_t kLookNs = 50'000;
  if (probe.deadline_ns == 0) return wait_until_reached(timepoint);
  for (;;) {
    STAGECOACH_ASSIGN_OR_RETURN(bool is_over, reached(timepoint));
    if (is_over) return Status::ok();
    int64_t now_ns = RealClock::instance().now_ns();
    if (now_ns > probe.deadline_ns) {
      return deadline_exceeded(fmt::format("{} did not end its copies {} in time", device.id(),
                                           probe.up ? "up" : "down"));
    }
    sleep_until_ns(now_ns + kLookNs);
  }
}

size_t rank_of(double share, size_t count) {
  auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(count)));
  return std::clamp<size_t>(rank, 1, count) - 1;
}

/// Urgent copies and the events that time them.
class UrgentCopies {
 public:
  UrgentCopies(Device& device, Stream& stream, const ProbeMemory& memory,
               const TransferProbe& probe)
      : device_(device), stream_(stream), memory_(memory), probe_(probe) {}

  /// Makes the events, which takes time of its own.
  Status prepare() {
    for (int event = 0; event < 2 * probe_.urgent_copies; ++event) {
      STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Event> made, timing_event(device_));
      events_.push_back(std::move(made));
    }
    return Status::ok();
  }

  Status issue(int64_t intended_ns) {
    size_t index = calls_.size();
    Call call{intended_ns, RealClock::instance().now_ns(), 0};
    ByteCount size = memory_.urgent_on_host.size;
    ByteCount first = probe_.splits ? std::min(kFirstPiece, size / 2) : 0;
    if (probe_.splits) {
      STAGECOACH_RETURN_IF_FAILED(stream_.copy(piece(0, first)));
      STAGECOACH_RETURN_IF_FAILED(stream_.record(*events_[2 * index]));
    }
    STAGECOACH_RETURN_IF_FAILED(stream_.copy(piece(first, size - first)));
    STAGECOACH_RETURN_IF_FAILED(stream_.record(*events_[2 * index + 1]));
    call.returned_ns = RealClock::instance().now_ns();
    calls_.push_back(call);
    return Status::ok();
  }

  /// After the stream has ended: adds all to `result`; the time at which the last ended, or 0.
  Result<int64_t> collect(TransferProbeResult& result) const {
    int64_t last_ns = 0;
    for (size_t index = 0; index < calls_.size(); ++index) {
      const Call& call = calls_[index];
      int64_t began_ns = call.returned_ns;
      if (probe_.splits) {
        STAGECOACH_ASSIGN_OR_RETURN(began_ns, events_[2 * index]->timestamp_ns());
      }
      STAGECOACH_ASSIGN_OR_RETURN(int64_t ended_ns, events_[2 * index + 1]->timestamp_ns());
      // The engine may have begun, and ended, while the calls were under way.
      began_ns = std::min(began_ns, ended_ns);
      int64_t queued_ns = std::min(call.returned_ns, began_ns);
      result.urgent.push_back({call.called_ns - call.intended_ns, queued_ns - call.called_ns,
                               began_ns - queued_ns, ended_ns - began_ns});
      last_ns = std::max(last_ns, ended_ns);
    }
    std::sort(result.urgent.begin(), result.urgent.end(),
              [](const auto& a, const auto& b) { return a.total_ns() < b.total_ns(); });
    return last_ns;
  }

 private:
  static constexpr ByteCount kFirstPiece = 4 * kKiB;
  struct Call {
    int64_t intended_ns, called_ns, returned_ns;
  };

  CopyRequest piece(ByteCount offset, ByteCount size) const {
    return request_of(memory_.urgent_on_device.slice(offset, size),
                      memory_.urgent_on_host.slice(offset, size), probe_.up, "urgent");
  }

  Device& device_;
  Stream& stream_;
  const ProbeMemory& memory_;
  const TransferProbe& probe_;
  std::vector<std::unique_ptr<Event>> events_;  ///< two a copy: of its first piece and its end
  std::vector<Call> calls_;
};

}  // namespace

int64_t TransferProbeResult::urgent_at_ns(double share) const {
  if (urgent.empty()) return 0;
  return urgent[rank_of(share, urgent.size())].total_ns();
}

int64_t TransferProbeResult::part_at_ns(double share, int64_t UrgentTime::*part) const {
  if (urgent.empty()) return 0;
  std::vector<int64_t> times;
  for (const UrgentTime& one : urgent) times.push_back(one.*part);
  std::sort(times.begin(), times.end());
  return times[rank_of(share, times.size())];
}

namespace {

/// A probe under way.
class ProbeRun {
 public:
  ProbeRun(Device& device, const ProbeMemory& memory, const TransferProbe& probe)
      : device_(device), memory_(memory), probe_(probe) {}

  Status prepare() {
    STAGECOACH_ASSIGN_OR_RETURN(urgent_, device_.create_stream({"urgent"}));
    BulkOptions options{probe_.method, probe_.chunk_bytes, probe_.ahead, nullptr,
                        probe_.ring_chunks};
    if (probe_.method == BulkMethod::kSharedStream) options.urgent = urgent_.get();
    STAGECOACH_ASSIGN_OR_RETURN(bulk_, BulkLane::create(device_, "bulk", options));
    STAGECOACH_ASSIGN_OR_RETURN(start_, timing_event(device_));
    STAGECOACH_ASSIGN_OR_RETURN(end_, timing_event(device_));
    copies_.emplace(device_, *urgent_, memory_, probe_);
    return copies_->prepare();
  }

  /// Issues all copies, urgent ones at their times, and waits for them.
  Status run() {
    STAGECOACH_RETURN_IF_ERROR(bulk_->record(*start_));
    int64_t start_ns = RealClock::instance().now_ns();
    for (int64_t pass = 0; pass < passes(); ++pass) {
      STAGECOACH_RETURN_IF_ERROR(
          bulk_->copy(request_of(memory_.bulk_on_device, memory_.bulk_on_host, probe_.up, "bulk")));
    }
    STAGECOACH_RETURN_IF_ERROR(bulk_->record(*end_));
    STAGECOACH_ASSIGN_OR_RETURN(Timepoint bulk_end, bulk_->mark());
    std::mt19937_64 generator(probe_.seed);
    std::uniform_real_distribution<double> jitter(0.1, 0.9);
    for (int copy = 0; copy < probe_.urgent_copies; ++copy) {
      double interval = static_cast<double>(probe_.urgent_interval_ns);
      int64_t intended_ns = start_ns + std::llround((copy + jitter(generator)) * interval);
      wait_exactly_until_ns(intended_ns);
      STAGECOACH_RETURN_IF_ERROR(copies_->issue(intended_ns));
    }
    STAGECOACH_RETURN_IF_ERROR(wait_for(bulk_end, device_, probe_));
    return wait_for(urgent_->last_submitted(), device_, probe_);
  }

  /// So that nobody waits for what does not end.
  void abandon(const Status& status) {
    bulk_->abandon(status);
    for (Stream* stream : bulk_->streams()) stream->abandon(status);
    urgent_->abandon(status);
  }

  Result<TransferProbeResult> collect() const {
    TransferProbeResult result;
    STAGECOACH_ASSIGN_OR_RETURN(int64_t first_ns, start_->timestamp_ns());
    STAGECOACH_ASSIGN_OR_RETURN(int64_t last_ns, end_->timestamp_ns());
    STAGECOACH_ASSIGN_OR_RETURN(int64_t last_urgent_ns, copies_->collect(result));
    last_ns = std::max(last_ns, last_urgent_ns);
    auto bytes = static_cast<double>(passes() * memory_.bulk_on_host.size +
                                     probe_.urgent_copies * memory_.urgent_on_host.size);
    result.bytes_per_s = bytes / (static_cast<double>(last_ns - first_ns) * 1e-9);
    return result;
  }

 private:
  int64_t passes() const {
    ByteCount each = memory_.bulk_on_host.size;
    return std::max<int64_t>(1, (probe_.bulk_bytes + each / 2) / each);
  }

  Device& device_;
  const ProbeMemory& memory_;
  const TransferProbe& probe_;
  std::unique_ptr<Event> start_, end_;
  std::unique_ptr<Stream> urgent_;
  std::optional<UrgentCopies> copies_;
  std::unique_ptr<BulkLane> bulk_;
};

}  // namespace

Result<TransferProbeResult> run_transfer_probe(Device& device, const ProbeMemory& memory,
                                               const TransferProbe& probe) {
  ProbeRun run(device, memory, probe);
  STAGECOACH_RETURN_IF_ERROR(run.prepare());
  Status status = run.run();
  if (status.is_ok()) return run.collect();
  run.abandon(status);
  return status;
}

}  // namespace stagecoach
