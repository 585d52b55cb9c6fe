#pragma once

#include <memory>

#include "core/task_pool.h"
#include "memory/pageable_memory.h"
#include "tools/bandwidth/measurement.h"

namespace stagecoach {

/// Bytes of host memory that an update of one parameter touches: a bf16 gradient and a split master
/// and two fp32 moments that are read and written.
inline constexpr int kBytesOfAnUpdate = 26;

/// What updates of a group work on. Taken by the first that needs it.
struct UpdateArrays {
  explicit UpdateArrays(int64_t count) : element_count(count) {}
  /// Gets and touches it, unless that has been done. Errors: resource exhausted.
  Status open();

  const int64_t element_count;
  PageableMemory gradients, high, remainder, first_moment, second_moment;
};

/// How fast threads update parameters as training does (AdamW, train/update_kernel). "parameters"
/// in Gparam/s, "dram" in GB/s of the memory they touch. A repeat is an update of all of them.
class UpdateMeasurement final : public Measurement {
 public:
  /// `info` needs id, group and params.
  UpdateMeasurement(MeasurementInfo info, int threads, std::shared_ptr<UpdateArrays> arrays);

  Status prepare() override;
  Result<Batch> run(int64_t repeats, int64_t deadline_ns) override;

 private:
  const int threads_;
  const std::shared_ptr<UpdateArrays> arrays_;
  std::unique_ptr<TaskPool> pool_;
  int64_t step_ = 0;
};

}  // namespace stagecoach
