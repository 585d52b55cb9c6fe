#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/executor.h"
#include "core/status.h"
#include "core/task.h"
#include "hal/host_queue.h"
#include "memory/host_state.h"
#include "scheduler/block_optimizer.h"
#include "scheduler/consistency.h"
#include "scheduler/network.h"
#include "scheduler/pump.h"
#include "scheduler/update_turns.h"

namespace stagecoach {

/// One optimizer step on the host.
struct StepOutcome {
  int64_t step = 0;           ///< from 0
  double sum_of_squares = 0;  ///< of all gradients
  StepVerdict verdict;
  int64_t host_ns = 0;  ///< for which the host was at work on it, not what devices updated
};

/// Runs the updates of steps on the host's queue and on those of devices that update blocks: those
/// of a block when its gradients have landed, the verdict is there where updates wait for one, and
/// nobody reads what they overwrite (P1, P4). Of several that could run the one whose block is
/// needed first goes first: with kAsync the last layers', whose gradient storage is needed first;
/// else the first layers', which the next forward needs first. Large blocks go in pieces, so that
/// they do not hold up others. Thread rule: the executor's thread.
class HostUpdates {
 public:
  /// What a piece of an update should take: long beside what it costs to hand over, short beside
  /// what an urgent block can wait.
  static constexpr int64_t kPieceNs = 2'000'000;
  /// Elements of the first piece, from which the host's rate is measured, and the least of any.
  static constexpr int64_t kFirstPieceElements = 1024 * 1024;
  static constexpr int64_t kLeastPieceElements = 1024;
  /// Pieces on the host's queue at a time: the next must be there when one ends.
  static constexpr int kPiecesAhead = 2;
  /// Elements of a piece that a device updates: long beside filling its pipeline.
  static constexpr int64_t kDevicePieceElements = 16 * 1024 * 1024;

  struct Setup {
    Executor* executor = nullptr;
    Pump* pump = nullptr;
    HostQueue* queue = nullptr;
    std::vector<HostQueue*> device_queues;  ///< by BlockOptimizer::updating_device
    HostState* state = nullptr;
    Consistency* consistency = nullptr;
    const Network* network = nullptr;
  };
  explicit HostUpdates(const Setup& setup);

  /// Runs a step, from 0, to its end. `contributed` resumes when all gradients of a block have
  /// landed and have been added up.
  Task<Result<StepOutcome>> run(int64_t number, std::shared_ptr<BlockOptimizer> optimizer,
                                std::function<Task<Status>(int block)> contributed,
                                std::function<void()> judged,
                                std::function<void(const Status&)> on_failure);
  /// Ends all waits.
  void fail(const Status& status);

 private:
  struct Step;
  using StepPointer = std::shared_ptr<Step>;
  /// Who updates: a queue, and whose turn it is there.
  struct Updater {
    HostQueue* queue = nullptr;
    UpdateTurns turns;
    bool is_host = true;
    double element_ns = 0;     ///< of the last piece; 0: none yet
    int64_t last_done_ns = 0;  ///< when it had been made
  };
  Task<Status> update_block(StepPointer step, int block);
  Task<Status> sum_block(StepPointer step, int block);
  Task<Status> update_pieces(StepPointer step, int block);
  Task<Status> finish_piece(Updater& updater, int64_t start_ns, int64_t elements, Timepoint done);
  Status judge(Step& step);
  int64_t deadline(int64_t step, int block) const;
  Updater& updater_of(const Step& step, int block);
  static int64_t piece_elements(const Updater& updater);

  Setup setup_;
  std::vector<int> first_layer_, last_layer_;  ///< per block: that use it
  std::vector<Updater> updaters_;              ///< the host's, then those of devices
};

}  // namespace stagecoach
