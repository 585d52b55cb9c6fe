#include "tools/bandwidth/peer_flow.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "core/clock.h"
#include "tools/bandwidth/await.h"
#include "tools/bandwidth/transfer_memory.h"

namespace stagecoach {

namespace {

constexpr int64_t kPeerSlots = 4;
constexpr int64_t kPeerPrepareNs = 20'000'000'000;
constexpr int kPeerPoison = 0xEE;

int64_t prepare_deadline_ns() {
  return RealClock::instance().now_ns() + kPeerPrepareNs;
}

}  // namespace

const char* peer_route_name(PeerRoute route) {
  switch (route) {
    case PeerRoute::kDirect:
      return "direct";
    case PeerRoute::kStaged:
      return "staged";
    case PeerRoute::kUp:
      return "up";
    case PeerRoute::kDown:
      return "down";
  }
  return "unknown";
}

PeerFlow::PeerFlow(PeerEnds ends, ByteCount chunk_bytes, uint64_t seed, TaskPool& pool)
    : ends_(std::move(ends)), chunk_bytes_(chunk_bytes), seed_(seed), pool_(pool) {}

std::string PeerFlow::name() const {
  if (ends_.source == nullptr) return ends_.target->id() + " up";
  if (ends_.target == nullptr) return ends_.source->id() + " down";
  return fmt::format("{} to {}", ends_.source->id(), ends_.target->id());
}

Stream& PeerFlow::last_stream() const {
  bool ends_at_source = ends_.route == PeerRoute::kDirect || ends_.route == PeerRoute::kDown;
  return ends_at_source ? *source_stream_ : *target_stream_;
}

Status PeerFlow::get_memory() {
  ByteCount ring = kPeerSlots * chunk_bytes_;
  auto on_device = [ring](Device& device) {
    return require_buffer(device.allocate(ring, "p2p"), device, ring, "p2p");
  };
  auto on_host = [ring](Device& device) {
    return require_buffer(device.allocate_pinned(ring, "p2p"), device, ring, "p2p");
  };
  STAGECOACH_ASSIGN_OR_RETURN(pattern_, on_host(issuer()));
  if (ends_.source != nullptr) {
    STAGECOACH_ASSIGN_OR_RETURN(sent_, on_device(*ends_.source));
    STAGECOACH_ASSIGN_OR_RETURN(source_stream_, ends_.source->create_stream({"p2p_source"}));
  }
  if (ends_.target != nullptr) {
    STAGECOACH_ASSIGN_OR_RETURN(received_, on_device(*ends_.target));
    STAGECOACH_ASSIGN_OR_RETURN(target_stream_, ends_.target->create_stream({"p2p_target"}));
  }
  Device& last = ends_.target != nullptr ? *ends_.target : *ends_.source;
  STAGECOACH_ASSIGN_OR_RETURN(landing_, on_host(last));
  if (ends_.route != PeerRoute::kStaged) return Status::ok();
  STAGECOACH_ASSIGN_OR_RETURN(staging_, on_host(*ends_.source));
  return Status::ok();
}

Status PeerFlow::prepare() {
  if (issuer().virtual_time() != nullptr) {
    return unimplemented("copies between simulated devices are not measured");
  }
  if (ends_.route == PeerRoute::kDirect) STAGECOACH_RETURN_IF_ERROR(ends_.proof->run());
  STAGECOACH_RETURN_IF_ERROR(get_memory());
  fill_pattern(pattern_->host_data(), pattern_->size(), seed_, pool_);
  if (ends_.source == nullptr) return Status::ok();
  STAGECOACH_ASSIGN_OR_RETURN(
      Timepoint filled, source_stream_->copy({sent_->view(), pattern_->view(), "p2p pattern"}));
  return await_timepoint(*ends_.source, filled, prepare_deadline_ns());
}

Status PeerFlow::begin(int64_t chunks) {
  chunks_ = chunks;
  issued_ = 0;
  uploads_.clear();
  while (std::ssize(events_) < chunks_) {
    STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Event> event,
                                last_stream().device().create_event({.timing = true}));
    events_.push_back(std::move(event));
  }
  return Status::ok();
}

/// One hop down, one up; a place of the staging memory is used again when its chunk has gone up.
Status PeerFlow::issue_staged(ByteCount offset) {
  if (issued_ >= kPeerSlots) {
    Timepoint free = uploads_[static_cast<size_t>(issued_ - kPeerSlots)];
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

Status PeerFlow::issue() {
  ByteCount offset = issued_ % kPeerSlots * chunk_bytes_;
  if (ends_.route == PeerRoute::kStaged) {
    STAGECOACH_RETURN_IF_ERROR(issue_staged(offset));
  } else {
    Buffer& source = ends_.source != nullptr ? *sent_ : *pattern_;
    STAGECOACH_RETURN_IF_FAILED(
        last_stream().copy({final_buffer()->slice(offset, chunk_bytes_),
                            source.slice(offset, chunk_bytes_), peer_route_name(ends_.route)}));
  }
  STAGECOACH_RETURN_IF_FAILED(last_stream().record(*events_[static_cast<size_t>(issued_)]));
  ++issued_;
  return Status::ok();
}

Status PeerFlow::await(int64_t deadline_ns) {
  return await_timepoint(last_stream().device(), last_stream().last_submitted(), deadline_ns);
}

void PeerFlow::abandon(const Status& status) {
  for (Stream* stream : {source_stream_.get(), target_stream_.get()}) {
    if (stream != nullptr) stream->abandon(status);
  }
}

Result<FlowMarks> PeerFlow::marks() const {
  FlowMarks marks;
  for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
    STAGECOACH_ASSIGN_OR_RETURN(int64_t time_ns,
                                events_[static_cast<size_t>(chunk)]->timestamp_ns());
    marks.push_back({time_ns, static_cast<double>((chunk + 1) * chunk_bytes_)});
  }
  return marks;
}

Status PeerFlow::poison() {
  if (ends_.target == nullptr) {
    std::memset(landing_->host_data(), kPeerPoison, static_cast<size_t>(landing_->size()));
    return Status::ok();
  }
  STAGECOACH_ASSIGN_OR_RETURN(
      Timepoint end, target_stream_->fill({received_->view(), kPeerPoison, 1, "p2p poison"}));
  return await_timepoint(*ends_.target, end, prepare_deadline_ns());
}

Result<DataCheck> PeerFlow::check(int64_t deadline_ns) {
  ByteCount size = std::min(chunks_, kPeerSlots) * chunk_bytes_;
  if (ends_.target != nullptr) {
    STAGECOACH_ASSIGN_OR_RETURN(
        Timepoint end,
        target_stream_->copy({landing_->slice(0, size), received_->slice(0, size), "p2p check"}));
    STAGECOACH_RETURN_IF_ERROR(await_timepoint(*ends_.target, end, deadline_ns));
  }
  return compare_bytes(pattern_->host_data(), landing_->host_data(), size, pool_);
}

}  // namespace stagecoach
