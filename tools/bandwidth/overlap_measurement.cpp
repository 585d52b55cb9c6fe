#include "tools/bandwidth/overlap_measurement.h"

#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "tools/bandwidth/units.h"

namespace stagecoach {

namespace {

constexpr int64_t kRepeatNs = 5'000'000;
constexpr int64_t kLeastMarks = 4;  ///< of each part: so many ends have a window between them
constexpr int kAheadOfDevice = 4;   ///< copies or products that a stream has been given
constexpr int64_t kLookNs = 50'000;
constexpr int64_t kOverlapPoisonNs = 60'000'000'000;
constexpr double kLeastOverlapCoverage = 0.5;  ///< passes of host threads may be long
constexpr double kFlopPerTflop = 1e12;

MeasurementInfo complete_overlap_info(MeasurementInfo info, const OverlapParts& parts) {
  bool goes_up = false, goes_down = false;
  for (const TransferFlow& flow : parts.flows) {
    (flow.direction == LinkDirection::kUp ? goes_up : goes_down) = true;
  }
  if (parts.host || goes_up || goes_down) info.quantities.push_back({"memory", "GB/s"});
  if (parts.host) info.quantities.push_back({"host", "GB/s"});
  if (goes_up) info.quantities.push_back({"up", "GB/s"});
  if (goes_down) info.quantities.push_back({"down", "GB/s"});
  if (!parts.products.empty()) info.quantities.push_back({"compute", "TFLOP/s"});
  info.directions = static_cast<int>(goes_up) + static_cast<int>(goes_down);
  return info;
}

}  // namespace

/// What one stream of a device does again and again.
struct OverlapMeasurement::Lane {
  Device* device = nullptr;
  std::string part;                                          ///< the quantity it counts for
  double amount = 0;                                         ///< bytes or FLOP of one
  std::function<Result<Timepoint>(Stream&, int64_t)> issue;  ///< number `index` of the batch
  std::unique_ptr<Stream> stream;
  std::vector<std::unique_ptr<Event>> events;  ///< kAheadOfDevice, in turn
  FlowMarks marks;
  int64_t issued = 0, ended = 0;

  void start() {
    marks.clear();
    issued = ended = 0;
  }
  /// Notes what has ended.
  Status look() {
    while (ended < issued) {
      Event& event = *events[static_cast<size_t>(ended % kAheadOfDevice)];
      STAGECOACH_ASSIGN_OR_RETURN(bool is_over, event.query());
      if (!is_over) break;
      STAGECOACH_ASSIGN_OR_RETURN(int64_t time_ns, event.timestamp_ns());
      ++ended;
      marks.push_back({time_ns, static_cast<double>(ended) * amount});
    }
    return Status::ok();
  }
  Status fill() {
    while (issued - ended < kAheadOfDevice) {
      STAGECOACH_RETURN_IF_FAILED(issue(*stream, issued));
      Event& event = *events[static_cast<size_t>(issued % kAheadOfDevice)];
      STAGECOACH_RETURN_IF_FAILED(stream->record(event));
      ++issued;
    }
    return Status::ok();
  }
};

/// A thread in which the host's part is measured one repeat after the other.
class OverlapMeasurement::HostLoop {
 public:
  HostLoop(Measurement* measurement, int64_t deadline_ns) {
    if (measurement == nullptr) return;
    thread_ = std::thread([this, measurement, deadline_ns] {
      double bytes = 0;
      while (!is_stopped_.load(std::memory_order_relaxed)) {
        Result<Batch> pass = measurement->run(1, deadline_ns);
        if (!pass.is_ok()) {
          status_ = pass.status();
          break;
        }
        // GB/s are bytes a ns.
        bytes += pass->samples[1].front() * static_cast<double>(pass->duration_ns);
        marks_.push_back({RealClock::instance().now_ns(), bytes});
        passes_.fetch_add(1, std::memory_order_relaxed);
      }
      has_ended_.store(true, std::memory_order_release);
    });
  }
  ~HostLoop() { static_cast<void>(join()); }

  bool has_enough() const {
    return !thread_.joinable() || has_ended_.load(std::memory_order_acquire) ||
           passes_.load(std::memory_order_relaxed) >= kLeastMarks;
  }
  void stop() { is_stopped_.store(true, std::memory_order_relaxed); }
  /// What happened, after it.
  Status join() {
    stop();
    if (thread_.joinable()) thread_.join();
    return status_;
  }
  const FlowMarks& marks() const { return marks_; }

 private:
  std::atomic<bool> is_stopped_{false}, has_ended_{false};
  std::atomic<int64_t> passes_{0};
  FlowMarks marks_;
  Status status_;
  std::thread thread_;
};

OverlapMeasurement::OverlapMeasurement(MeasurementInfo info, OverlapParts parts)
    : Measurement(complete_overlap_info(std::move(info), parts)), parts_(std::move(parts)) {}

OverlapMeasurement::~OverlapMeasurement() = default;

int64_t OverlapMeasurement::slots(const TransferFlow& flow) const {
  return std::max<int64_t>(1, flow.memory->ring_bytes() / parts_.chunk_bytes);
}

Status OverlapMeasurement::add_lane(Device& device, const std::string& part, double amount,
                                    std::function<Result<Timepoint>(Stream&, int64_t)> issue) {
  if (device.virtual_time() != nullptr) {
    return unimplemented("host threads do not run beside simulated devices");
  }
  auto lane = std::make_unique<Lane>();
  lane->device = &device;
  lane->part = part;
  lane->amount = amount;
  lane->issue = std::move(issue);
  STAGECOACH_ASSIGN_OR_RETURN(lane->stream, device.create_stream({"overlap_" + part}));
  for (int event = 0; event < kAheadOfDevice; ++event) {
    STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Event> made, device.create_event({.timing = true}));
    lane->events.push_back(std::move(made));
  }
  lanes_.push_back(std::move(lane));
  return Status::ok();
}

Status OverlapMeasurement::prepare() {
  for (const TransferFlow& flow : parts_.flows) {
    Device& device = flow.memory->device();
    STAGECOACH_RETURN_IF_ERROR(add_lane(
        device, link_direction_name(flow.direction), static_cast<double>(parts_.chunk_bytes),
        [this, &flow, places = slots(flow)](Stream& stream, int64_t index) {
          ByteCount offset = index % places * parts_.chunk_bytes;
          return stream.copy(flow.memory->request(flow.direction, offset, parts_.chunk_bytes));
        }));
    STAGECOACH_RETURN_IF_ERROR(flow.memory->open());
  }
  for (const std::shared_ptr<ComputeMeasurement>& product : parts_.products) {
    STAGECOACH_RETURN_IF_ERROR(
        add_lane(product->device(), "compute", product->flop(),
                 [&product](Stream& stream, int64_t) { return product->issue(stream); }));
    STAGECOACH_RETURN_IF_ERROR(product->prepare());
  }
  return parts_.host ? parts_.host->prepare() : Status::ok();
}

/// Keeps all streams busy until everything has been active for long enough, then lets them end.
Status OverlapMeasurement::drive(HostLoop& host, int64_t wanted_ns, int64_t deadline_ns) {
  int64_t start_ns = RealClock::instance().now_ns();
  for (bool is_ending = false;;) {
    bool has_enough = host.has_enough(), is_empty = true;
    for (const std::unique_ptr<Lane>& lane : lanes_) {
      STAGECOACH_RETURN_IF_ERROR(lane->look());
      if (!is_ending) STAGECOACH_RETURN_IF_ERROR(lane->fill());
      has_enough = has_enough && lane->ended >= kLeastMarks;
      is_empty = is_empty && lane->ended == lane->issued;
    }
    int64_t now_ns = RealClock::instance().now_ns();
    if (is_ending && is_empty) return Status::ok();
    if (has_enough && now_ns - start_ns >= wanted_ns) {
      is_ending = true;
      host.stop();
    }
    if (now_ns > deadline_ns) {
      return deadline_exceeded(fmt::format("what runs at once did not end within {:.3g} s",
                                           static_cast<double>(now_ns - start_ns) / kNsPerSecond));
    }
    sleep_until_ns(now_ns + kLookNs);
  }
}

int64_t OverlapMeasurement::overrun_ns() const {
  std::set<Device*> devices;
  for (const std::unique_ptr<Lane>& lane : lanes_) devices.insert(lane->device);
  int64_t overrun_ns = 0;
  for (Device* device : devices) {
    DeviceCounters counters = device->counters();
    overrun_ns += counters.overrun_ns + counters.copy_overrun_ns;
  }
  return overrun_ns;
}

Batch OverlapMeasurement::batch_of(const FlowMarks& host_marks) const {
  std::vector<FlowMarks> flows;
  std::vector<std::string> parts;
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    flows.push_back(lane->marks);
    parts.push_back(lane->part);
  }
  if (!host_marks.empty()) {
    flows.push_back(host_marks);
    parts.emplace_back("host");
  }
  WindowRates window = window_or_whole_time(flows);
  std::map<std::string, double> rates;
  for (size_t flow = 0; flow < flows.size(); ++flow) {
    bool is_compute = parts[flow] == "compute";
    rates[parts[flow]] += window.bytes_per_s[flow] / (is_compute ? kFlopPerTflop : kBytesPerGb);
  }
  rates["memory"] = rates["host"] + rates["up"] + rates["down"];
  Batch batch;
  for (const Quantity& quantity : info().quantities)
    batch.samples.push_back({rates[quantity.name]});
  if (window.coverage < kLeastOverlapCoverage) batch.flags.push_back(SampleFlag::kShortWindow);
  return batch;
}

Result<Batch> OverlapMeasurement::run(int64_t repeats, int64_t deadline_ns) {
  for (const std::unique_ptr<Lane>& lane : lanes_) lane->start();
  int64_t overrun_before_ns = overrun_ns(), start_ns = RealClock::instance().now_ns();
  HostLoop host(parts_.host.get(), deadline_ns);
  Status status = drive(host, repeats * kRepeatNs, deadline_ns);
  Status host_status = host.join();
  if (status.is_ok()) status = host_status;
  if (!status.is_ok()) {
    // What is queued must not go on into the memory of the next measurement.
    for (const std::unique_ptr<Lane>& lane : lanes_) lane->stream->abandon(status);
    return status;
  }
  Batch batch = batch_of(host.marks());
  batch.duration_ns = std::max<int64_t>(1, RealClock::instance().now_ns() - start_ns);
  batch.flag_overrun(overrun_ns() - overrun_before_ns);
  return batch;
}

Status OverlapMeasurement::poison() {
  int64_t deadline_ns = RealClock::instance().now_ns() + kOverlapPoisonNs;
  for (const TransferFlow& flow : parts_.flows) {
    ByteCount size = slots(flow) * parts_.chunk_bytes;
    STAGECOACH_RETURN_IF_ERROR(flow.memory->poison(flow.direction, size, deadline_ns));
  }
  return parts_.host ? parts_.host->poison() : Status::ok();
}

Result<DataCheck> OverlapMeasurement::check(int64_t deadline_ns) {
  DataCheck check;
  // Downloads first: checking an upload brings it down to where they land.
  for (LinkDirection direction : {LinkDirection::kDown, LinkDirection::kUp}) {
    for (size_t flow = 0; flow < parts_.flows.size(); ++flow) {
      const TransferFlow& one = parts_.flows[flow];
      if (one.direction != direction) continue;
      ByteCount size = std::min(slots(one), lanes_[flow]->issued) * parts_.chunk_bytes;
      STAGECOACH_ASSIGN_OR_RETURN(DataCheck found, one.memory->check(direction, size, deadline_ns));
      check.add(found);
    }
  }
  if (!parts_.host) return check;
  STAGECOACH_ASSIGN_OR_RETURN(DataCheck found, parts_.host->check(deadline_ns));
  check.add(found);
  return check;
}

}  // namespace stagecoach
