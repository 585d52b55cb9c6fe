#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "core/task_pool.h"
#include "memory/node_placement.h"
#include "memory/pageable_memory.h"
#include "tools/bandwidth/measurement.h"
#include "tools/bandwidth/thread_place.h"

namespace stagecoach {

/// What threads do with host memory.
enum class HostKernel : uint8_t {
  kRead,        ///< adds up 8-byte words
  kWrite,       ///< writes them
  kCopy,        ///< memcpy
  kTriad,       ///< STREAM's: fp32 target = first + 2 * second
  kConvert,     ///< fp32 to bf16, as updates round (train/bfloat16_rounding)
  kAccumulate,  ///< bf16 gradients onto fp32 sums, as rounds add up (memory/gradient_sum)
};

/// "read", "write", "copy", "triad", "convert", "accumulate".
const char* host_kernel_name(HostKernel kernel);

/// Bytes of a pass over arrays of `size_bytes`, whole MiB. "payload" is what the pass is there for:
/// of a conversion the bf16 that would go to a device, of adding the bf16 that came from one.
/// `dram` are bytes read and written; lines that ordinary stores fetch first are not counted, since
/// processors leave that out at times.
struct HostPassBytes {
  ByteCount payload = 0, dram = 0;

  double dram_factor() const { return static_cast<double>(dram) / static_cast<double>(payload); }
};
HostPassBytes host_pass_bytes(HostKernel kernel, ByteCount size_bytes);

/// Two arrays that measurements of a group share. Taken by the first that needs them. The source's
/// words are fp32 numbers below 2, and so are both of their halves as bf16.
struct HostArrays {
  explicit HostArrays(ByteCount size, std::shared_ptr<NodePlacement> node = nullptr)
      : size_bytes(size), placement(std::move(node)) {}
  /// Gets and touches them, unless that has been done. Errors: resource exhausted.
  Status open();

  const ByteCount size_bytes;                      ///< of each, whole MiB
  const std::shared_ptr<NodePlacement> placement;  ///< null: anywhere
  PageableMemory source, target;
};

/// How fast threads go through host memory that caches do not hold: "payload" and "dram" in GB/s
/// (host_pass_bytes). What they write is compared with what one thread gets element by element.
class HostMeasurement final : public Measurement {
 public:
  /// `info` needs id, group and params.
  HostMeasurement(MeasurementInfo info, HostKernel kernel, int threads,
                  std::shared_ptr<HostArrays> arrays, ThreadPlace place = {});

  Status prepare() override;
  Result<Batch> run(int64_t repeats, int64_t deadline_ns) override;
  Status poison() override;
  Result<DataCheck> check(int64_t deadline_ns) override;

 private:
  void run_pass();
  void run_piece(ByteCount begin, ByteCount size);

  const HostKernel kernel_;
  const int threads_;
  const std::shared_ptr<HostArrays> arrays_;
  const ThreadPlace place_;
  bool is_unverified_ = false;
  std::unique_ptr<TaskPool> pool_;
  std::atomic<uint64_t> sum_{0};  ///< of what was read, so that reading is not left out
  int64_t passes_ = 0;            ///< since the target was spoilt
};

}  // namespace stagecoach
