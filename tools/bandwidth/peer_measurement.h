#pragma once

#include <memory>
#include <vector>

#include "core/task_pool.h"
#include "hal/device.h"
#include "tools/bandwidth/measurement.h"

namespace stagecoach {

/// How bytes get from one device to another.
enum class PeerRoute : uint8_t {
  kDirect,  ///< peer to peer, where the driver lets it
  kStaged   ///< by way of pinned host memory, both hops at the same time
};

/// "direct", "staged".
const char* peer_route_name(PeerRoute route);

/// Copies from one device to another of the same backend, round a ring of four chunks: "rate" in
/// GB/s. Drivers have said that bytes had arrived which had not: what arrived is read back by way
/// of the target's own download and compared. Not for simulated devices. A driver may hang: measure
/// in a process of its own.
class PeerMeasurement final : public Measurement {
 public:
  /// `info` needs id, group and params; the devices and the pool must outlive it.
  PeerMeasurement(MeasurementInfo info, Device& source, Device& target, PeerRoute route,
                  ByteCount chunk_bytes, uint64_t seed, TaskPool& pool);

  /// Unavailable where the driver does not let the devices reach each other.
  Status prepare() override;
  Result<Batch> run(int64_t repeats, int64_t deadline_ns) override;
  Status poison() override;
  Result<DataCheck> check(int64_t deadline_ns) override;

 private:
  Status get_memory();
  Status issue(int64_t chunk);
  Status issue_staged(int64_t chunk, ByteCount offset);
  Stream& last_stream() const;

  Device& source_;
  Device& target_;
  const PeerRoute route_;
  const ByteCount chunk_bytes_;
  const uint64_t seed_;
  TaskPool& pool_;
  std::unique_ptr<Stream> source_stream_, target_stream_;
  BufferHandle pattern_, sent_, staging_, received_, landing_;
  std::vector<Timepoint> uploads_;  ///< of staged chunks
  std::vector<std::unique_ptr<Event>> events_;
  int64_t chunks_ = 0;  ///< of the last batch
};

}  // namespace stagecoach
