#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/executor.h"
#include "core/status.h"
#include "core/trace.h"
#include "scheduler/device_lane.h"
#include "scheduler/network.h"
#include "scheduler/plan.h"

namespace stagecoach {

/// Something a producer submits once and consumers wait for.
struct Cell {
  explicit Cell(Executor& executor) : submitted(executor) {}
  void publish(const Landing& where) {
    landing = where;
    submitted.set();
  }

  Latch submitted;
  Landing landing;
};

/// What the coroutines of one pass tell each other and those of the next.
class PassCells {
 public:
  PassCells(Executor& executor, const Network& network, const Plan& plan);

  /// The activation before layer `boundary` is in the store.
  Cell& activation(int boundary, int m) { return activations_[index(boundary, m)]; }
  /// Its gradient is in the store.
  Cell& gradient(int boundary, int m) { return gradients_[index(boundary, m)]; }
  /// The last read of that place in the store has been submitted.
  Cell& freed(int boundary, int m) { return freed_[index(boundary, m)]; }
  /// The output of the last layer is on the host.
  Cell& output(int m) { return outputs_[static_cast<size_t>(m)]; }
  /// The gradient of (block, site) of `round` has landed.
  Cell& landing_of(int block, int site, int round) {
    return landed_[first_site_[static_cast<size_t>(block)] + static_cast<size_t>(site) * rounds_ +
                   static_cast<size_t>(round)];
  }
  /// The gradients of (block, round) have been added, so their slots are free, if there is a sum.
  Latch& added_of(int block, int round) {
    return added_[static_cast<size_t>(block) * rounds_ + static_cast<size_t>(round)];
  }
  Latch& all_added_of(int block) { return added_of(block, static_cast<int>(rounds_) - 1); }
  /// Everything of `device` has been submitted.
  Latch& device_submitted(int device) { return submitted_[static_cast<size_t>(device)]; }

  void fail(const Status& status);

 private:
  size_t index(int boundary, int m) const {
    return static_cast<size_t>(boundary) * micro_batches_ + static_cast<size_t>(m);
  }

  size_t micro_batches_;
  size_t rounds_;
  std::vector<Cell> activations_, gradients_, freed_, outputs_, landed_;
  std::vector<Latch> added_, submitted_;
  std::vector<size_t> first_site_;
};

/// A slot that could not be uploaded before a time because its blocks were not at their version.
struct VersionWait {
  int first_action = 0;  ///< of the slot
  int64_t start_ns = 0, end_ns = 0;
};

/// One pass over a batch, from its start to its report.
struct Pass {
  Pass(Executor& executor, const Network& network, const Plan& used, PassInput given)
      : plan(&used),
        input(std::move(given)),
        cells(executor, network, used),
        group(executor),
        waits(static_cast<size_t>(used.device_count())) {}

  int64_t number = 0;
  int64_t step = 0;     ///< whose gradients it makes; passes without any belong to the next
  int64_t version = 0;  ///< of the blocks that it reads
  const Plan* plan;
  PassInput input;
  PlanContext context;
  std::vector<bool> gradient_travels;  ///< per boundary: whether stages hand it over
  PassCells cells;
  TaskGroup group;
  std::vector<std::vector<VersionWait>> waits;  ///< per device
  std::shared_ptr<Pass> previous;               ///< until that one has ended
  Trace* trace = nullptr;
};

}  // namespace stagecoach
