#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <thread>

#include "core/clock.h"
#include "core/random.h"
#include "hal/topology.h"

namespace stagecoach {

namespace {

constexpr std::chrono::microseconds kPollInterval{50};
constexpr double kNsPerSecond = 1e9;

/// Everything one probe needs; freed at its end, after late copies have let go of it.
struct Probe {
  std::unique_ptr<Stream> source_stream;
  std::unique_ptr<Stream> target_stream;
  BufferHandle sent;
  BufferHandle received;
  BufferHandle source;
  BufferHandle target;
};

void write_pattern(BufferView view) {
  RandomKey key;
  auto* bytes = view.host_data();
  uint64_t index = 0;
  for (ByteCount offset = 0; offset < view.size; offset += sizeof(uint32_t), ++index) {
    uint32_t word = random_word(key, index);
    ByteCount left = std::min<ByteCount>(sizeof(word), view.size - offset);
    std::memcpy(bytes + offset, &word, static_cast<size_t>(left));
  }
}

Result<Probe> make_probe(Device& source, Device& target, ByteCount size) {
  Probe probe;
  STAGECOACH_ASSIGN_OR_RETURN(probe.source_stream, source.create_stream({"peer_probe_source"}));
  STAGECOACH_ASSIGN_OR_RETURN(probe.target_stream, target.create_stream({"peer_probe_target"}));
  STAGECOACH_ASSIGN_OR_RETURN(probe.sent, require_buffer(source.allocate_pinned(size, "probe sent"),
                                                         source, size, "probe"));
  STAGECOACH_ASSIGN_OR_RETURN(
      probe.received,
      require_buffer(target.allocate_pinned(size, "probe received"), target, size, "probe"));
  STAGECOACH_ASSIGN_OR_RETURN(
      probe.source, require_buffer(source.allocate(size, "probe source"), source, size, "probe"));
  STAGECOACH_ASSIGN_OR_RETURN(
      probe.target, require_buffer(target.allocate(size, "probe target"), target, size, "probe"));
  write_pattern(probe.sent->view());
  std::memset(probe.received->host_data(), 0, static_cast<size_t>(size));
  return probe;
}

/// False when `timepoint` is not reached by `deadline_ns`.
Result<bool> reached_before(Timepoint timepoint, int64_t deadline_ns) {
  for (;;) {
    STAGECOACH_ASSIGN_OR_RETURN(bool done, reached(timepoint));
    if (done) return true;
    if (RealClock::instance().now_ns() >= deadline_ns) return false;
    std::this_thread::sleep_for(kPollInterval);
  }
}

/// The copy under test, timed, then the way back to the host. What it finds goes into `link`.
Status run_probe(Probe& probe, PeerLink& link, int64_t timeout_ns) {
  RealClock& clock = RealClock::instance();
  int64_t deadline_ns = clock.now_ns() + timeout_ns;
  auto broken = [&link](std::string reason) {
    link.state = PeerState::kBroken;
    link.reason = std::move(reason);
    return Status::ok();
  };
  STAGECOACH_RETURN_IF_FAILED(
      probe.source_stream->copy({probe.source->view(), probe.sent->view(), "probe upload"}));
  STAGECOACH_RETURN_IF_ERROR(probe.source_stream->synchronize());
  int64_t start_ns = clock.now_ns();
  STAGECOACH_ASSIGN_OR_RETURN(
      Timepoint crossed,
      probe.source_stream->copy({probe.target->view(), probe.source->view(), "probe peer copy"}));
  STAGECOACH_ASSIGN_OR_RETURN(bool in_time, reached_before(crossed, deadline_ns));
  if (!in_time) {
    return broken(fmt::format("a copy of {} bytes took longer than {} ms", probe.sent->size(),
                              timeout_ns / 1'000'000));
  }
  int64_t elapsed_ns = std::max<int64_t>(1, clock.now_ns() - start_ns);
  STAGECOACH_ASSIGN_OR_RETURN(
      Timepoint landed,
      probe.target_stream->copy({probe.received->view(), probe.target->view(), "probe download"}));
  STAGECOACH_ASSIGN_OR_RETURN(in_time, reached_before(landed, deadline_ns));
  if (!in_time) return broken("reading the copied bytes back took too long");
  if (std::memcmp(probe.sent->host_data(), probe.received->host_data(),
                  static_cast<size_t>(probe.sent->size())) != 0) {
    return broken("the bytes that arrived are not the bytes that were sent");
  }
  link.state = PeerState::kWorks;
  link.bytes_per_second =
      static_cast<double>(probe.sent->size()) / static_cast<double>(elapsed_ns) * kNsPerSecond;
  return Status::ok();
}

/// Whether the driver allows the link; else it becomes impossible, with the driver's reason.
bool enable_both_ways(const std::vector<Device*>& devices, PeerLink& link) {
  Device& source = *devices[static_cast<size_t>(link.source)];
  Device& target = *devices[static_cast<size_t>(link.target)];
  Status enabled = source.enable_peer(target);
  if (enabled.is_ok()) enabled = target.enable_peer(source);
  if (enabled.is_ok()) return true;
  link.state = PeerState::kImpossible;
  link.reason = enabled.message();
  return false;
}

}  // namespace

Status probe_peer_link(const std::vector<Device*>& devices, PeerLink& link, ByteCount size,
                       int64_t timeout_ns) {
  int count = static_cast<int>(devices.size());
  if (link.source < 0 || link.source >= count || link.target < 0 || link.target >= count ||
      link.source == link.target) {
    return invalid_argument(
        fmt::format("link {} -> {} is no pair of the {} devices", link.source, link.target, count));
  }
  if (!enable_both_ways(devices, link)) return Status::ok();
  Device& source = *devices[static_cast<size_t>(link.source)];
  Device& target = *devices[static_cast<size_t>(link.target)];
  STAGECOACH_ASSIGN_OR_RETURN(Probe probe, make_probe(source, target, size));
  Status status = run_probe(probe, link, timeout_ns);
  if (!status.is_ok()) {
    // The device refused or failed the copy: that is what the probe is there to find out.
    link.state = PeerState::kBroken;
    link.reason = status.to_string();
  }
  if (link.state == PeerState::kBroken) {
    probe.source_stream->abandon(cancelled("the peer link under test is broken"));
    probe.target_stream->abandon(cancelled("the peer link under test is broken"));
  }
  return Status::ok();
}

Status settle_peer_links(const std::vector<Device*>& devices, PeerChoice choice,
                         std::vector<PeerLink>& links) {
  // Long enough for any link that is worth using, short enough to wait for at a start.
  constexpr ByteCount kProbeBytes = 16 * kMiB;
  constexpr int64_t kTimeoutNs = 2'000'000'000;
  for (PeerLink& link : links) {
    if (choice == PeerChoice::kOff) {
      link.state = PeerState::kImpossible;
      link.reason = "turned off by STAGECOACH_PEER=off";
    } else if (choice == PeerChoice::kProbe) {
      Status status = probe_peer_link(devices, link, kProbeBytes, kTimeoutNs);
      if (status.code() == StatusCode::kResourceExhausted) {
        link.reason = status.message();
      } else {
        STAGECOACH_RETURN_IF_ERROR(status);
      }
    } else if (enable_both_ways(devices, link)) {
      link.state = PeerState::kWorks;
      link.reason = "not tested: STAGECOACH_PEER=on";
    }
  }
  return Status::ok();
}

}  // namespace stagecoach
