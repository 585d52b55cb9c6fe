#include "scheduler/pass.h"

namespace stagecoach {

PassCells::PassCells(Executor& executor, const Network& network, const Plan& plan)
    : micro_batches_(static_cast<size_t>(plan.micro_batches)),
      rounds_(static_cast<size_t>(plan.rounds)) {
  size_t pieces = (network.layers.size() + 1) * micro_batches_;
  for (std::vector<Cell>* cells : {&activations_, &gradients_, &freed_}) {
    cells->assign(pieces, Cell(executor));
  }
  outputs_.assign(micro_batches_, Cell(executor));
  for (int m = 0; m < plan.micro_batches; ++m) activation(0, m).submitted.set();
  for (const ParameterBlock& block : network.blocks) {
    first_site_.push_back(landed_.size());
    landed_.resize(landed_.size() + static_cast<size_t>(block.site_count) * rounds_,
                   Cell(executor));
  }
  added_.assign(network.blocks.size() * rounds_, Latch(executor));
  submitted_.assign(static_cast<size_t>(plan.device_count()), Latch(executor));
}

void PassCells::fail(const Status& status) {
  for (std::vector<Cell>* cells : {&activations_, &gradients_, &freed_, &outputs_, &landed_}) {
    for (Cell& cell : *cells) cell.submitted.set(status);
  }
  for (std::vector<Latch>* latches : {&added_, &submitted_}) {
    for (Latch& latch : *latches) latch.set(status);
  }
}

}  // namespace stagecoach
