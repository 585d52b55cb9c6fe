#include "scheduler/host_updates.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fmt/format.h>
#include <optional>

#include "core/clock.h"

namespace stagecoach {

/// A step under way. Jobs on the host's queue hold it: after a failure one may still be running
/// when those who wait for it have been woken.
struct HostUpdates::Step {
  Step(Executor& executor, int64_t number, std::shared_ptr<BlockOptimizer> used, size_t blocks)
      : optimizer(std::move(used)), sums(blocks, 0), judged(executor) {
    outcome.step = number;
  }

  StepOutcome outcome;
  std::shared_ptr<BlockOptimizer> optimizer;
  std::function<Task<Status>(int block)> contributed;
  std::function<void()> on_verdict;
  std::function<void(const Status&)> on_failure;
  std::vector<double> sums;  ///< per block
  int sums_missing = 0;
  Latch judged;
  std::atomic<int64_t> host_ns = 0;
};

namespace {

/// Adds the time it lives to `total_ns`.
class WorkTimer {
 public:
  explicit WorkTimer(std::atomic<int64_t>& total_ns) : total_ns_(total_ns) {}
  ~WorkTimer() { total_ns_ += RealClock::instance().now_ns() - start_ns_; }
  WorkTimer(const WorkTimer&) = delete;
  WorkTimer& operator=(const WorkTimer&) = delete;

 private:
  std::atomic<int64_t>& total_ns_;
  int64_t start_ns_ = RealClock::instance().now_ns();
};

}  // namespace

HostUpdates::HostUpdates(const Setup& setup) : setup_(setup) {
  updaters_.push_back({setup.queue, UpdateTurns(*setup.executor, kPiecesAhead)});
  for (HostQueue* queue : setup.device_queues) {
    updaters_.push_back({queue, UpdateTurns(*setup.executor, kPiecesAhead), false});
  }
  const Network& network = *setup.network;
  first_layer_.assign(network.blocks.size(), -1);
  last_layer_.assign(network.blocks.size(), -1);
  for (size_t layer = 0; layer < network.layers.size(); ++layer) {
    for (const BlockUse& use : network.layers[layer]->uses()) {
      auto block = static_cast<size_t>(use.block);
      if (first_layer_[block] < 0) first_layer_[block] = static_cast<int>(layer);
      last_layer_[block] = static_cast<int>(layer);
    }
  }
}

int64_t HostUpdates::deadline(int64_t step, int block) const {
  auto layers = static_cast<int64_t>(setup_.network->layers.size());
  bool last_first = setup_.consistency->update() == UpdateMode::kAsync;
  int64_t layer = last_first ? layers - 1 - last_layer_[static_cast<size_t>(block)]
                             : first_layer_[static_cast<size_t>(block)];
  return step * layers + layer;
}

Task<Result<StepOutcome>> HostUpdates::run(int64_t number,
                                           std::shared_ptr<BlockOptimizer> optimizer,
                                           std::function<Task<Status>(int block)> contributed,
                                           std::function<void()> judged,
                                           std::function<void(const Status&)> on_failure) {
  int block_count = setup_.state->block_count();
  auto step = std::make_shared<Step>(*setup_.executor, number, std::move(optimizer),
                                     static_cast<size_t>(block_count));
  step->contributed = std::move(contributed);
  step->on_verdict = std::move(judged);
  step->on_failure = std::move(on_failure);
  TaskGroup group(*setup_.executor);
  group.set_on_failure([&](const Status& status) {
    step->judged.set(status);
    step->on_failure(status);
  });
  for (int block = 0; block < block_count; ++block) {
    if (setup_.state->is_frozen(block)) continue;
    ++step->sums_missing;
    group.spawn(update_block(step, block));
  }
  Status status = co_await group.join();
  if (!status.is_ok()) co_return status;
  step->outcome.host_ns = step->host_ns;
  co_return step->outcome;
}

Task<Status> HostUpdates::update_block(StepPointer step, int block) {
  Consistency& consistency = *setup_.consistency;
  if (consistency.holds(Ordering::kGradientsBeforeUpdate)) {
    STAGECOACH_CO_RETURN_IF_ERROR(co_await step->contributed(block));
  }
  STAGECOACH_CO_RETURN_IF_ERROR(co_await sum_block(step, block));
  if (step->optimizer->is_gated()) STAGECOACH_CO_RETURN_IF_ERROR(co_await step->judged.wait());
  int64_t next = step->outcome.step + 1;
  STAGECOACH_CO_RETURN_IF_ERROR(co_await consistency.reached(block, next - 1));
  if (step->outcome.verdict.skip) {
    setup_.state->skip(block);
  } else {
    if (consistency.holds(Ordering::kReadBeforeOverwrite)) {
      STAGECOACH_CO_RETURN_IF_ERROR(co_await consistency.overwritable(block, next));
    }
    STAGECOACH_CO_RETURN_IF_ERROR(co_await update_pieces(step, block));
    setup_.state->publish(block);
  }
  consistency.publish(block);
  co_return Status::ok();
}

Task<Status> HostUpdates::sum_block(StepPointer step, int block) {
  HostWorkCost cost{step->optimizer->sum_bytes(block), 0};
  Result<Timepoint> summed = setup_.queue->submit("norm", cost, [step, block](TaskPool& pool) {
    WorkTimer timer(step->host_ns);
    step->sums[static_cast<size_t>(block)] = step->optimizer->sum_of_squares(block, pool);
    return Status::ok();
  });
  if (!summed.is_ok()) co_return summed.status();
  STAGECOACH_CO_RETURN_IF_ERROR(co_await setup_.pump->reached(*summed));
  double sum = step->sums[static_cast<size_t>(block)];
  if (!step->optimizer->is_gated() && !std::isfinite(sum)) {
    co_return data_loss(fmt::format("gradients of '{}' are not finite",
                                    setup_.network->blocks[static_cast<size_t>(block)].name));
  }
  if (--step->sums_missing > 0) co_return Status::ok();
  Status status = judge(*step);
  step->judged.set(status);
  co_return status;
}

Status HostUpdates::judge(Step& step) {
  double total = 0;
  for (double sum : step.sums) total += sum;
  step.outcome.sum_of_squares = total;
  STAGECOACH_ASSIGN_OR_RETURN(StepVerdict verdict, step.optimizer->judge(total));
  // Updates that do not wait for it are reading the one they began with.
  if (step.optimizer->is_gated()) step.outcome.verdict = verdict;
  step.on_verdict();
  return Status::ok();
}

void HostUpdates::fail(const Status& status) {
  for (Updater& updater : updaters_) updater.turns.fail(status);
}

HostUpdates::Updater& HostUpdates::updater_of(const Step& step, int block) {
  int device = step.optimizer->updating_device(block);
  if (device < 0) return updaters_.front();
  STAGECOACH_CHECK(device < static_cast<int>(setup_.device_queues.size()));
  return updaters_[static_cast<size_t>(device) + 1];
}

int64_t HostUpdates::piece_elements(const Updater& updater) {
  if (!updater.is_host) return kDevicePieceElements;
  if (updater.element_ns <= 0) return kFirstPieceElements;
  double elements = static_cast<double>(kPieceNs) / updater.element_ns;
  return std::max(kLeastPieceElements, static_cast<int64_t>(elements));
}

Task<Status> HostUpdates::update_pieces(StepPointer step, int block) {
  Updater& updater = updater_of(*step, block);
  int64_t count = setup_.state->element_count(block);
  auto bytes = static_cast<double>(step->optimizer->update_bytes(block));
  TaskGroup pieces(*setup_.executor);
  // A piece that fails keeps its turn: whoever waits for one is woken by the failure.
  pieces.set_on_failure(step->on_failure);
  Status status;
  int64_t here = 0;
  bool is_host = updater.is_host;
  for (int64_t first = 0; first < count; first += here) {
    status = co_await updater.turns.turn(deadline(step->outcome.step, block));
    if (!status.is_ok()) break;
    here = std::min(piece_elements(updater), count - first);
    HostWorkCost cost;
    cost.bytes_touched =
        static_cast<ByteCount>(bytes * static_cast<double>(here) / static_cast<double>(count));
    int64_t start_ns = RealClock::instance().now_ns();
    Result<Timepoint> done =
        updater.queue->submit("update", cost, [step, block, first, here, is_host](TaskPool& pool) {
          std::optional<WorkTimer> timer;
          if (is_host) timer.emplace(step->host_ns);
          return step->optimizer->update(block, first, here, step->outcome.verdict, pool);
        });
    status = done.status();
    if (!status.is_ok()) break;
    pieces.spawn(finish_piece(updater, start_ns, here, *done));
  }
  Status finished = co_await pieces.join();
  co_return status.is_ok() ? finished : status;
}

Task<Status> HostUpdates::finish_piece(Updater& updater, int64_t start_ns, int64_t elements,
                                       Timepoint done) {
  STAGECOACH_CO_RETURN_IF_ERROR(co_await setup_.pump->reached(done));
  int64_t now_ns = RealClock::instance().now_ns();
  // Two that were seen to be done at the same time say nothing.
  int64_t taken_ns = now_ns - std::max(start_ns, updater.last_done_ns);
  if (taken_ns > Pump::kPollIntervalNs / 2) {
    updater.element_ns = static_cast<double>(taken_ns) / static_cast<double>(elements);
  }
  updater.last_done_ns = now_ns;
  updater.turns.leave();
  co_return Status::ok();
}

}  // namespace stagecoach
