#include "tools/bandwidth/transfer_measurement.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/clock.h"
#include "tools/bandwidth/await.h"
#include "tools/bandwidth/units.h"

namespace stagecoach {

namespace {

constexpr int64_t kMarksOfABatch = 64;  ///< events cost time on cards; more tell nothing
constexpr int64_t kLeastChunksTogether = 8;
constexpr int64_t kPoisonLimitNs = 60'000'000'000;
constexpr double kLeastCoverage = 0.8;

MeasurementInfo complete_info(MeasurementInfo info, const std::vector<TransferFlow>& flows,
                              const TransferShape& shape) {
  if (flows.size() == 1) {
    info.quantities = {{"rate", "GB/s"}};
  } else {
    info.quantities = {{"total", "GB/s"}};
    for (const TransferFlow& flow : flows) info.quantities.push_back({flow.name(), "GB/s"});
    info.quantities.push_back({"fairness", "1"});
  }
  bool goes_up = false, goes_down = false, is_known = true;
  for (const TransferFlow& flow : flows) {
    bool is_up = flow.direction == LinkDirection::kUp;
    (is_up ? goes_up : goes_down) = true;
    const DeviceInfo& device = flow.memory->device().info();
    double rate = flow.link_bytes_per_s;
    if (rate <= 0) rate = is_up ? device.up_bytes_per_s : device.down_bytes_per_s;
    is_known = is_known && rate > 0;
    info.limit += rate / kBytesPerGb;
  }
  if (!is_known) info.limit = 0;
  const NodePlacement* placement = flows.front().memory->placement();
  if (placement != nullptr) info.params["node"] = placement->node();
  info.directions = goes_up && goes_down ? 2 : 1;
  info.payload_bytes = shape.chunk_bytes * static_cast<ByteCount>(flows.size());
  return info;
}

}  // namespace

const char* transfer_engine_name(TransferEngine engine) {
  return engine == TransferEngine::kCopy ? "copy" : "kernel";
}

std::string TransferFlow::name() const {
  return fmt::format("{} {}", memory->device().id(), link_direction_name(direction));
}

/// A stream of copies, its chunks of the batch and the events that time them.
struct TransferMeasurement::Lane {
  TransferFlow flow;
  std::unique_ptr<Stream> stream;
  std::vector<std::unique_ptr<Event>> events;
  std::vector<int64_t> marked_chunks;  ///< chunks before each event of the batch
  std::vector<Timepoint> ends;         ///< of chunks, where the depth is limited
  double weight = 1;                   ///< chunks of a repeat
  int64_t chunks = 0, issued = 0, slots = 1;
  int64_t mark_every = 1;

  Device& device() const { return flow.memory->device(); }
};

TransferMeasurement::TransferMeasurement(MeasurementInfo info, std::vector<TransferFlow> flows,
                                         TransferShape shape)
    : Measurement(complete_info(std::move(info), flows, shape)), shape_(shape) {
  for (TransferFlow& flow : flows) {
    auto lane = std::make_unique<Lane>();
    lane->flow = std::move(flow);
    lanes_.push_back(std::move(lane));
  }
}

TransferMeasurement::~TransferMeasurement() = default;

Status TransferMeasurement::check_chunks_fit(const TransferMemory& memory) const {
  if (shape_.chunk_bytes <= memory.ring_bytes()) return Status::ok();
  std::string text = fmt::format(
      "chunks of {} do not fit the memory of {} that copies move ({}); give --working-set",
      format_bytes(shape_.chunk_bytes), memory.device().id(), format_bytes(memory.ring_bytes()));
  if (memory.shortage().empty()) return resource_exhausted(text);
  return resource_exhausted(fmt::format(
      "{}; {} were wanted: {}", text, format_bytes(memory.wanted_ring_bytes()), memory.shortage()));
}

/// What of the memory is not as it was asked for.
void TransferMeasurement::note_memory(const TransferMemory& memory) {
  if (!memory.shortage().empty()) {
    set_param("working_set", memory.ring_bytes());
    set_param("working_set_wanted", memory.wanted_ring_bytes());
    set_param("shortage", memory.shortage());
  }
  if (memory.placement() != nullptr && !memory.placement()->doubt().empty()) {
    set_param("placement", memory.placement()->doubt());
    is_unverified_ = true;
  }
}

Status TransferMeasurement::prepare() {
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    bool reaches = shape_.engine == TransferEngine::kCopy ||
                   (lane->device().info().kernels_reach_pinned &&
                    lane->flow.memory->host_kind() == MemoryKind::kHostPinned);
    if (!reaches) {
      return unimplemented(fmt::format("kernels of {} do not reach {} host memory",
                                       lane->device().id(),
                                       memory_kind_name(lane->flow.memory->host_kind())));
    }
    TransferMemory& memory = *lane->flow.memory;
    STAGECOACH_RETURN_IF_ERROR(check_chunks_fit(memory));
    STAGECOACH_RETURN_IF_ERROR(memory.open());
    note_memory(memory);
    STAGECOACH_RETURN_IF_ERROR(check_chunks_fit(memory));
    lane->slots = std::max<int64_t>(1, memory.ring_bytes() / shape_.chunk_bytes);
    StreamOptions options{fmt::format("bandwidth_{}", link_direction_name(lane->flow.direction))};
    STAGECOACH_ASSIGN_OR_RETURN(lane->stream, lane->device().create_stream(options));
  }
  return Status::ok();
}

Status TransferMeasurement::ready_lanes(int64_t repeats) {
  // A window needs two ends, and little of what streams do before and after it.
  int64_t least = lanes_.size() == 1 ? 2 : kLeastChunksTogether;
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    lane->chunks = std::llround(static_cast<double>(std::max(repeats, least)) * lane->weight);
    lane->mark_every = std::max<int64_t>(1, lane->chunks / kMarksOfABatch);
    lane->issued = 0;
    lane->marked_chunks.clear();
    lane->ends.clear();
    int64_t marks = lane->chunks / lane->mark_every + 2;
    while (std::ssize(lane->events) < marks) {
      STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Event> event,
                                  lane->device().create_event({.timing = true}));
      lane->events.push_back(std::move(event));
    }
  }
  return Status::ok();
}

Result<Timepoint> TransferMeasurement::issue_bytes(Lane& lane, const CopyRequest& request) const {
  if (shape_.engine == TransferEngine::kCopy) return lane.stream->copy(request);
  Shape words{request.target.size / 4};
  Ops::Convert same;  // of fp32 to fp32 keeps all bits
  same.out = {request.target, DType::kF32, words};
  same.in = {request.source, DType::kF32, words};
  same.label = request.label;
  return lane.device().ops().convert(*lane.stream, same);
}

Status TransferMeasurement::issue_chunk(Lane& lane, int64_t deadline_ns) {
  if (shape_.depth > 0 && lane.issued >= shape_.depth) {
    Timepoint earlier = lane.ends[static_cast<size_t>(lane.issued - shape_.depth)];
    STAGECOACH_RETURN_IF_ERROR(await_timepoint(lane.device(), earlier, deadline_ns));
  }
  ByteCount offset = (lane.issued % lane.slots) * shape_.chunk_bytes;
  CopyRequest request = lane.flow.memory->request(lane.flow.direction, offset, shape_.chunk_bytes);
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint end, issue_bytes(lane, request));
  bool is_first = lane.issued == 0, is_last = lane.issued + 1 == lane.chunks;
  ++lane.issued;
  if (shape_.depth > 0) lane.ends.push_back(end);
  if (is_first || is_last || lane.issued % lane.mark_every == 0) {
    Event& event = *lane.events[lane.marked_chunks.size()];
    STAGECOACH_RETURN_IF_FAILED(lane.stream->record(event));
    lane.marked_chunks.push_back(lane.issued);
  }
  return Status::ok();
}

/// Chunks of all lanes side by side, in proportion to what each has.
Status TransferMeasurement::issue_all(int64_t deadline_ns) {
  int64_t most = 0;
  for (const std::unique_ptr<Lane>& lane : lanes_) most = std::max(most, lane->chunks);
  for (int64_t step = 1; step <= most; ++step) {
    for (const std::unique_ptr<Lane>& lane : lanes_) {
      while (lane->issued * most < step * lane->chunks) {
        STAGECOACH_RETURN_IF_ERROR(issue_chunk(*lane, deadline_ns));
      }
    }
  }
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    STAGECOACH_RETURN_IF_ERROR(
        await_timepoint(lane->device(), lane->stream->last_submitted(), deadline_ns));
  }
  return Status::ok();
}

Result<std::vector<FlowMarks>> TransferMeasurement::collect() {
  std::vector<FlowMarks> flows;
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    FlowMarks& marks = flows.emplace_back();
    for (size_t mark = 0; mark < lane->marked_chunks.size(); ++mark) {
      STAGECOACH_ASSIGN_OR_RETURN(int64_t time_ns, lane->events[mark]->timestamp_ns());
      auto bytes = static_cast<double>(lane->marked_chunks[mark] * shape_.chunk_bytes);
      marks.push_back({time_ns, bytes});
    }
  }
  return flows;
}

void TransferMeasurement::share_chunks(const std::vector<FlowMarks>& flows) {
  std::vector<double> chunk_ns;
  for (const FlowMarks& marks : flows) {
    double chunks = (marks.back().bytes - marks.front().bytes) / shape_.chunk_bytes;
    auto time_ns = static_cast<double>(marks.back().time_ns - marks.front().time_ns);
    chunk_ns.push_back(std::max(1.0, time_ns / chunks));
  }
  // The slowest takes one chunk a repeat, the others as many as they move meanwhile.
  constexpr double kMostWeight = 16;
  double slowest_ns = *std::max_element(chunk_ns.begin(), chunk_ns.end());
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    lanes_[lane]->weight = std::min(kMostWeight, slowest_ns / chunk_ns[lane]);
  }
}

int64_t TransferMeasurement::copy_overrun_ns() const {
  int64_t overrun_ns = 0;
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    overrun_ns += lane->device().counters().copy_overrun_ns;
  }
  return overrun_ns;
}

void TransferMeasurement::abandon(const Status& status) {
  for (const std::unique_ptr<Lane>& lane : lanes_) lane->stream->abandon(status);
}

Result<Batch> TransferMeasurement::run(int64_t repeats, int64_t deadline_ns) {
  STAGECOACH_RETURN_IF_ERROR(ready_lanes(repeats));
  int64_t overrun_before_ns = copy_overrun_ns();
  Status status = issue_all(deadline_ns);
  if (!status.is_ok()) {
    // What is queued must not go on into the memory of the next measurement.
    abandon(status);
    return status;
  }
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<FlowMarks> flows, collect());
  WindowRates window = window_or_whole_time(flows);
  Batch batch;
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    double chunks = static_cast<double>(lanes_[lane]->chunks);
    auto marked_ns = static_cast<double>(flows[lane].back().time_ns - flows[lane][0].time_ns);
    auto whole_ns = static_cast<int64_t>(marked_ns * chunks / (chunks - 1));
    batch.duration_ns = std::max(batch.duration_ns, whole_ns);
  }
  batch.samples.push_back({window.total_bytes_per_s / kBytesPerGb});
  if (lanes_.size() > 1) {
    for (double rate : window.bytes_per_s) batch.samples.push_back({rate / kBytesPerGb});
    batch.samples.push_back({window.fairness()});
    share_chunks(flows);
    if (window.coverage < kLeastCoverage) batch.flags.push_back(SampleFlag::kShortWindow);
  }
  if (is_unverified_) batch.flags.push_back(SampleFlag::kUnverified);
  batch.flag_overrun(copy_overrun_ns() - overrun_before_ns);
  return batch;
}

Status TransferMeasurement::poison() {
  int64_t deadline_ns = RealClock::instance().now_ns() + kPoisonLimitNs;
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    ByteCount size = lane->slots * shape_.chunk_bytes;
    STAGECOACH_RETURN_IF_ERROR(lane->flow.memory->poison(lane->flow.direction, size, deadline_ns));
  }
  return Status::ok();
}

Result<DataCheck> TransferMeasurement::check(int64_t deadline_ns) {
  DataCheck check;
  // Downloads first: checking an upload brings it down to where they land.
  for (LinkDirection direction : {LinkDirection::kDown, LinkDirection::kUp}) {
    for (const std::unique_ptr<Lane>& lane : lanes_) {
      if (lane->flow.direction != direction) continue;
      ByteCount size = std::min(lane->slots, lane->chunks) * shape_.chunk_bytes;
      STAGECOACH_ASSIGN_OR_RETURN(DataCheck one,
                                  lane->flow.memory->check(direction, size, deadline_ns));
      check.add(one);
    }
  }
  return check;
}

}  // namespace stagecoach
