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
  kRead,   ///< adds up 8-byte words
  kWrite,  ///< writes them
  kCopy    ///< memcpy
};

/// "read", "write", "copy".
const char* host_kernel_name(HostKernel kernel);

/// Two arrays that measurements of a group share. Taken by the first that needs them.
struct HostArrays {
  explicit HostArrays(ByteCount size, std::shared_ptr<NodePlacement> node = nullptr)
      : size_bytes(size), placement(std::move(node)) {}
  /// Gets and touches them, unless that has been done. Errors: resource exhausted.
  Status open();

  const ByteCount size_bytes;                      ///< of each, whole MiB
  const std::shared_ptr<NodePlacement> placement;  ///< null: anywhere
  PageableMemory source, target;
};

/// How fast threads read, write or copy host memory that caches do not hold. "payload" counts every
/// byte once, "dram" what the memory carries: copies read and write. Both in GB/s.
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
  void run_piece(ByteCount begin, ByteCount size);

  const HostKernel kernel_;
  const int threads_;
  const std::shared_ptr<HostArrays> arrays_;
  const ThreadPlace place_;
  bool is_unverified_ = false;
  std::unique_ptr<TaskPool> pool_;
  std::atomic<uint64_t> sum_{0};  ///< of what was read, so that reading is not left out
};

}  // namespace stagecoach
