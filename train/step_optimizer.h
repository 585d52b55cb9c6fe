#pragma once

#include <cstdint>
#include <vector>

#include "core/task_pool.h"
#include "memory/host_state.h"
#include "scheduler/block_optimizer.h"
#include "scheduler/network.h"
#include "train/device_updater.h"
#include "train/loss_scale.h"
#include "train/update_kernel.h"

namespace stagecoach {

/// A set of parameters with settings of its own.
struct ParameterGroup {
  double learning_rate_scale = 1.0;  ///< times the step's learning rate
  double weight_decay = 0.1;
};

/// What one step does with each block of a network: norm, clipping and update, by the numbers it
/// was made with. Thread rule: that of BlockOptimizer.
class StepOptimizer final : public BlockOptimizer {
 public:
  struct Setup {
    const Network* network = nullptr;
    HostState* state = nullptr;
    std::vector<std::vector<ParameterGroup>> groups;  ///< per block, per parameter
    UpdateNumbers numbers;              ///< without learning rate, decay and gradient scale
    double learning_rate = 0;           ///< of groups with scale 1
    double clip_norm = 0;               ///< 0: off
    int64_t step = 0;                   ///< for `loss_scales`
    double loss_scale = 1;              ///< that gradients were computed with
    LossScales* loss_scales = nullptr;  ///< of fp16: what verdicts go into; must outlive it
    std::vector<DeviceUpdater*> device_updaters;  ///< must outlive it
    std::vector<int> updating_devices;  ///< per block: of those; -1: the host; empty: all -1
  };
  explicit StepOptimizer(Setup setup) : setup_(std::move(setup)) {}

  bool is_gated() const override { return setup_.clip_norm > 0 || setup_.loss_scales != nullptr; }
  double sum_of_squares(int block, TaskPool& pool) override;
  /// Data loss where the norm is not finite and no smaller loss scale could help.
  Result<StepVerdict> judge(double sum_of_squares) override;
  /// Data loss where a parameter or moment would not be finite.
  Status update(int block, int64_t first, int64_t count, const StepVerdict& verdict,
                TaskPool& pool) override;
  int updating_device(int block) const override {
    if (setup_.updating_devices.empty()) return -1;
    return setup_.updating_devices[static_cast<size_t>(block)];
  }
  ByteCount sum_bytes(int block) const override;
  ByteCount update_bytes(int block) const override;

 private:
  Result<int64_t> update_elements(int block, int64_t first, int64_t count,
                                  const UpdateNumbers& numbers, TaskPool& pool);

  Setup setup_;
};

}  // namespace stagecoach
