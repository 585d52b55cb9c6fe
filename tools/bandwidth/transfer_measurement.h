#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/bandwidth/common_window.h"
#include "tools/bandwidth/measurement.h"
#include "tools/bandwidth/transfer_memory.h"

namespace stagecoach {

/// One stream of copies between a device and the host.
struct TransferFlow {
  std::shared_ptr<TransferMemory> memory;
  LinkDirection direction = LinkDirection::kUp;
  double link_bytes_per_s = 0;  ///< that it cannot exceed; 0: what the device knows of its link

  /// "cuda:0 up".
  std::string name() const;
};

/// What moves the bytes.
enum class TransferEngine : uint8_t {
  kCopy,   ///< a copy engine
  kKernel  ///< a kernel that reads or writes pinned host memory
};

/// "copy", "kernel".
const char* transfer_engine_name(TransferEngine engine);

/// How copies of a measurement are cut and issued.
struct TransferShape {
  ByteCount chunk_bytes = 0;
  int depth = 0;  ///< chunks issued and not ended, of a stream; 0: any number
  TransferEngine engine = TransferEngine::kCopy;
};

/// Copies of one or several streams at the same time: one is a copy, both directions of a device
/// are duplex, several devices are contention. Each stream moves chunks round its ring; rates are
/// those of the time in which all were active (common_window), in GB/s: of a lone stream "rate",
/// else "total", then each stream's own, then "fairness". A repeat is a chunk a stream; faster
/// streams get more, so that all end at about the same time.
class TransferMeasurement final : public Measurement {
 public:
  /// `info` needs id, group and params; the rest follows from `flows` (at least one). Devices that
  /// are simulated share one time.
  TransferMeasurement(MeasurementInfo info, std::vector<TransferFlow> flows, TransferShape shape);
  ~TransferMeasurement() override;

  Status prepare() override;
  Result<Batch> run(int64_t repeats, int64_t deadline_ns) override;
  Status poison() override;
  Result<DataCheck> check(int64_t deadline_ns) override;

 private:
  struct Lane;

  Status check_chunks_fit(const TransferMemory& memory) const;
  void note_memory(const TransferMemory& memory);
  Status ready_lanes(int64_t repeats);
  Status issue_all(int64_t deadline_ns);
  Status issue_chunk(Lane& lane, int64_t deadline_ns);
  Result<Timepoint> issue_bytes(Lane& lane, const CopyRequest& request) const;
  Result<std::vector<FlowMarks>> collect();
  void share_chunks(const std::vector<FlowMarks>& flows);
  int64_t copy_overrun_ns() const;
  void abandon(const Status& status);

  const TransferShape shape_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  bool is_unverified_ = false;
};

}  // namespace stagecoach
