#include "tools/bandwidth/peer_measurement.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/clock.h"
#include "tools/bandwidth/await.h"
#include "tools/bandwidth/common_window.h"
#include "tools/bandwidth/transfer_memory.h"
#include "tools/bandwidth/units.h"

namespace stagecoach {

namespace {

constexpr int64_t kPeerSlots = 4;
constexpr int64_t kPeerPrepareNs = 20'000'000'000;

MeasurementInfo complete_peer_info(MeasurementInfo info, ByteCount chunk_bytes) {
  info.quantities = {{"rate", "GB/s"}};
  info.payload_bytes = chunk_bytes;
  return info;
}

}  // namespace

const char* peer_route_name(PeerRoute route) {
  return route == PeerRoute::kDirect ? "direct" : "staged";
}

PeerMeasurement::PeerMeasurement(MeasurementInfo info, Device& source, Device& target,
                                 PeerRoute route, ByteCount chunk_bytes, uint64_t seed,
                                 TaskPool& pool)
    : Measurement(complete_peer_info(std::move(info), chunk_bytes)),
      source_(source),
      target_(target),
      route_(route),
      chunk_bytes_(chunk_bytes),
      seed_(seed),
      pool_(pool) {}

Stream& PeerMeasurement::last_stream() const {
  return route_ == PeerRoute::kDirect ? *source_stream_ : *target_stream_;
}

Status PeerMeasurement::get_memory() {
  ByteCount ring = kPeerSlots * chunk_bytes_;
  auto on_device = [ring](Device& device) {
    return require_buffer(device.allocate(ring, "p2p"), device, ring, "p2p");
  };
  auto on_host = [ring](Device& device) {
    return require_buffer(device.allocate_pinned(ring, "p2p"), device, ring, "p2p");
  };
  STAGECOACH_ASSIGN_OR_RETURN(pattern_, on_host(source_));
  STAGECOACH_ASSIGN_OR_RETURN(sent_, on_device(source_));
  STAGECOACH_ASSIGN_OR_RETURN(received_, on_device(target_));
  STAGECOACH_ASSIGN_OR_RETURN(landing_, on_host(target_));
  if (route_ == PeerRoute::kDirect) return Status::ok();
  STAGECOACH_ASSIGN_OR_RETURN(staging_, on_host(source_));
  return Status::ok();
}

Status PeerMeasurement::prepare() {
  if (source_.virtual_time() != nullptr) {
    return unimplemented("copies between simulated devices are not measured");
  }
  if (route_ == PeerRoute::kDirect) {
    Status enabled = source_.enable_peer(target_);
    if (enabled.is_ok()) enabled = target_.enable_peer(source_);
    if (!enabled.is_ok()) {
      return unavailable(
          fmt::format("no peer access ({}); copies go through the host", enabled.message()));
    }
  }
  STAGECOACH_ASSIGN_OR_RETURN(source_stream_, source_.create_stream({"p2p_source"}));
  STAGECOACH_ASSIGN_OR_RETURN(target_stream_, target_.create_stream({"p2p_target"}));
  STAGECOACH_RETURN_IF_ERROR(get_memory());
  fill_pattern(pattern_->host_data(), pattern_->size(), seed_, pool_);
  STAGECOACH_ASSIGN_OR_RETURN(
      Timepoint filled, source_stream_->copy({sent_->view(), pattern_->view(), "p2p pattern"}));
  return await_timepoint(source_, filled, RealClock::instance().now_ns() + kPeerPrepareNs);
}

/// One hop down, one up; a place of the staging memory is used again when its chunk has gone up.
Status PeerMeasurement::issue_staged(int64_t chunk, ByteCount offset) {
  if (chunk >= kPeerSlots) {
    Timepoint free = uploads_[static_cast<size_t>(chunk - kPeerSlots)];
    STAGECOACH_RETURN_IF_FAILED(source_stream_->wait(free));
  }
  BufferView between = staging_->slice(offset, chunk_bytes_);
  STAGECOACH_RETURN_IF_FAILED(
      source_stream_->copy({between, sent_->slice(offset, chunk_bytes_), "p2p down"}));
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint down, source_stream_->mark());
  STAGECOACH_RETURN_IF_FAILED(target_stream_->wait(down));
  STAGECOACH_RETURN_IF_FAILED(
      target_stream_->copy({received_->slice(offset, chunk_bytes_), between, "p2p up"}));
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint up, target_stream_->mark());
  uploads_.push_back(up);
  return Status::ok();
}

Status PeerMeasurement::issue(int64_t chunk) {
  ByteCount offset = chunk % kPeerSlots * chunk_bytes_;
  if (route_ == PeerRoute::kStaged) {
    STAGECOACH_RETURN_IF_ERROR(issue_staged(chunk, offset));
  } else {
    STAGECOACH_RETURN_IF_FAILED(
        source_stream_->copy({received_->slice(offset, chunk_bytes_),
                              sent_->slice(offset, chunk_bytes_), "p2p direct"}));
  }
  STAGECOACH_RETURN_IF_FAILED(last_stream().record(*events_[static_cast<size_t>(chunk)]));
  return Status::ok();
}

Result<Batch> PeerMeasurement::run(int64_t repeats, int64_t deadline_ns) {
  chunks_ = std::max<int64_t>(2, repeats);
  uploads_.clear();
  while (std::ssize(events_) < chunks_) {
    STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Event> event,
                                last_stream().device().create_event({.timing = true}));
    events_.push_back(std::move(event));
  }
  Status status;
  for (int64_t chunk = 0; chunk < chunks_ && status.is_ok(); ++chunk) status = issue(chunk);
  if (status.is_ok()) {
    status = await_timepoint(last_stream().device(), last_stream().last_submitted(), deadline_ns);
  }
  if (!status.is_ok()) {
    for (Stream* stream : {source_stream_.get(), target_stream_.get()}) stream->abandon(status);
    return status;
  }
  std::vector<FlowMarks> flow(1);
  for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
    STAGECOACH_ASSIGN_OR_RETURN(int64_t time_ns,
                                events_[static_cast<size_t>(chunk)]->timestamp_ns());
    flow[0].push_back({time_ns, static_cast<double>((chunk + 1) * chunk_bytes_)});
  }
  WindowRates window = common_window(flow);
  Batch batch;
  batch.duration_ns = (window.end_ns - window.start_ns) * chunks_ / (chunks_ - 1);
  batch.samples = {{window.total_bytes_per_s / kBytesPerGb}};
  return batch;
}

Status PeerMeasurement::poison() {
  constexpr uint32_t kPeerPoison = 0xEE;
  STAGECOACH_ASSIGN_OR_RETURN(
      Timepoint end, target_stream_->fill({received_->view(), kPeerPoison, 1, "p2p poison"}));
  return await_timepoint(target_, end, RealClock::instance().now_ns() + kPeerPrepareNs);
}

Result<DataCheck> PeerMeasurement::check(int64_t deadline_ns) {
  ByteCount size = std::min(chunks_, kPeerSlots) * chunk_bytes_;
  STAGECOACH_ASSIGN_OR_RETURN(
      Timepoint end,
      target_stream_->copy({landing_->slice(0, size), received_->slice(0, size), "p2p check"}));
  STAGECOACH_RETURN_IF_ERROR(await_timepoint(target_, end, deadline_ns));
  return compare_bytes(pattern_->host_data(), landing_->host_data(), size, pool_);
}

}  // namespace stagecoach
