#include "scheduler/transfer_probe.h"

#include <algorithm>
#include <cmath>
#include <memory>
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

}  // namespace

int64_t TransferProbeResult::urgent_at_ns(double share) const {
  if (urgent_ns.empty()) return 0;
  auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(urgent_ns.size())));
  return urgent_ns[std::clamp<size_t>(rank, 1, urgent_ns.size()) - 1];
}

Result<TransferProbeResult> run_transfer_probe(Device& device, const ProbeMemory& memory,
                                               const TransferProbe& probe) {
  STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Stream> urgent, device.create_stream({"urgent"}));
  BulkOptions options{probe.method, probe.chunk_bytes, probe.ahead, nullptr, 0};
  if (probe.method == BulkMethod::kSharedStream) options.urgent = urgent.get();
  STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<BulkLane> bulk,
                              BulkLane::create(device, "bulk", options));
  STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Event> start, timing_event(device));
  STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Event> end, timing_event(device));
  std::vector<std::unique_ptr<Event>> ends;
  for (int copy = 0; copy < probe.urgent_copies; ++copy) {
    STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Event> event, timing_event(device));
    ends.push_back(std::move(event));
  }

  ByteCount each = memory.bulk_on_host.size;
  int64_t passes = std::max<int64_t>(1, (probe.bulk_bytes + each / 2) / each);
  STAGECOACH_RETURN_IF_ERROR(bulk->record(*start));
  int64_t start_ns = RealClock::instance().now_ns();
  for (int64_t pass = 0; pass < passes; ++pass) {
    STAGECOACH_RETURN_IF_ERROR(
        bulk->copy(request_of(memory.bulk_on_device, memory.bulk_on_host, probe.up, "bulk")));
  }
  STAGECOACH_RETURN_IF_ERROR(bulk->record(*end));
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint bulk_end, bulk->mark());

  std::mt19937_64 generator(probe.seed);
  std::uniform_real_distribution<double> jitter(0.1, 0.9);
  std::vector<int64_t> intended_ns;
  for (int copy = 0; copy < probe.urgent_copies; ++copy) {
    double interval = static_cast<double>(probe.urgent_interval_ns);
    intended_ns.push_back(start_ns + std::llround((copy + jitter(generator)) * interval));
    wait_exactly_until_ns(intended_ns.back());
    STAGECOACH_RETURN_IF_FAILED(urgent->copy(
        request_of(memory.urgent_on_device, memory.urgent_on_host, probe.up, "urgent")));
    STAGECOACH_RETURN_IF_FAILED(urgent->record(*ends[copy]));
  }
  STAGECOACH_RETURN_IF_ERROR(wait_until_reached(bulk_end));
  STAGECOACH_RETURN_IF_ERROR(urgent->synchronize());

  TransferProbeResult result;
  STAGECOACH_ASSIGN_OR_RETURN(int64_t first_ns, start->timestamp_ns());
  STAGECOACH_ASSIGN_OR_RETURN(int64_t last_ns, end->timestamp_ns());
  for (int copy = 0; copy < probe.urgent_copies; ++copy) {
    STAGECOACH_ASSIGN_OR_RETURN(int64_t ended_ns, ends[copy]->timestamp_ns());
    result.urgent_ns.push_back(ended_ns - intended_ns[copy]);
    last_ns = std::max(last_ns, ended_ns);
  }
  std::sort(result.urgent_ns.begin(), result.urgent_ns.end());
  auto bytes =
      static_cast<double>(passes * each + probe.urgent_copies * memory.urgent_on_host.size);
  result.bytes_per_s = bytes / (static_cast<double>(last_ns - first_ns) * 1e-9);
  return result;
}

}  // namespace stagecoach
