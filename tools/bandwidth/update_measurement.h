#pragma once

#include <memory>
#include <utility>

#include "core/task_pool.h"
#include "memory/node_placement.h"
#include "memory/pageable_memory.h"
#include "tools/bandwidth/measurement.h"
#include "tools/bandwidth/thread_place.h"

namespace stagecoach {

/// Bytes of host memory that an update of one parameter touches: a bf16 gradient and a split master
/// and two fp32 moments that are read and written.
inline constexpr int kBytesOfAnUpdate = 26;

/// What updates of a group work on. Taken by the first that needs it.
struct UpdateArrays {
  explicit UpdateArrays(int64_t count, std::shared_ptr<NodePlacement> node = nullptr)
      : element_count(count), placement(std::move(node)) {}
  /// Gets and touches it, unless that has been done. Errors: resource exhausted.
  Status open();

  const int64_t element_count;
  const std::shared_ptr<NodePlacement> placement;  ///< null: anywhere
  PageableMemory gradients, high, remainder, first_moment, second_moment;
};

/// How fast threads update parameters as training does (AdamW, train/update_kernel). "parameters"
/// in Gparam/s, "dram" in GB/s of the memory they touch. A repeat is an update of all of them.
class UpdateMeasurement final : public Measurement {
 public:
  /// `info` needs id, group and params.
  UpdateMeasurement(MeasurementInfo info, int threads, std::shared_ptr<UpdateArrays> arrays,
                    ThreadPlace place = {});

  Status prepare() override;
  Result<Batch> run(int64_t repeats, int64_t deadline_ns) override;

 private:
  const int threads_;
  const std::shared_ptr<UpdateArrays> arrays_;
  const ThreadPlace place_;
  bool is_unverified_ = false;
  std::unique_ptr<TaskPool> pool_;
  int64_t step_ = 0;
};

}  // namespace stagecoach
