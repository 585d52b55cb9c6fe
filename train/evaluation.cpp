#include "train/evaluation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "train/bigram_entropy.h"
#include "train/interrupt.h"
#include "train/labels.h"

namespace stagecoach {

namespace {

/// Reads a window; of its targets, those beyond `left` do not count, and `left` goes down.
Status read_limited(const TokenWindows& windows, int64_t index, int64_t& left, int32_t* inputs,
                    int32_t* labels) {
  STAGECOACH_RETURN_IF_ERROR(windows.read(index, inputs, labels));
  for (int64_t i = 0; i < windows.sequence(); ++i) {
    if (labels[i] == kIgnoredLabel) continue;
    if (left == 0) labels[i] = kIgnoredLabel;
    left = std::max<int64_t>(left - 1, 0);
  }
  return Status::ok();
}

}  // namespace

Result<Evaluation> evaluate_windows(Trainer& trainer, const TokenWindows& windows, int64_t batch,
                                    int64_t target_limit) {
  Evaluation evaluation;
  double sum = 0.0;
  int64_t left = target_limit;
  int64_t sequence = windows.sequence();
  std::vector<int32_t> inputs, labels;
  for (int64_t first = 0; first < windows.count() && left > 0; first += batch) {
    if (InterruptGuard::is_interrupted()) return cancelled("evaluation was interrupted");
    int64_t most = std::min(batch, windows.count() - first);
    int64_t count = 0;
    inputs.resize(static_cast<size_t>(most * sequence));
    labels.resize(inputs.size());
    for (; count < most && left > 0; ++count) {
      STAGECOACH_RETURN_IF_ERROR(read_limited(windows, first + count, left,
                                              inputs.data() + count * sequence,
                                              labels.data() + count * sequence));
    }
    inputs.resize(static_cast<size_t>(count * sequence));
    labels.resize(inputs.size());
    Shape shape{count, sequence};
    STAGECOACH_ASSIGN_OR_RETURN(StepLoss loss, trainer.evaluate(HostTensor::of(inputs, shape),
                                                                HostTensor::of(labels, shape)));
    sum += loss.loss * static_cast<double>(loss.targets);
    evaluation.tokens += loss.targets;
  }
  if (evaluation.tokens > 0) evaluation.loss = sum / static_cast<double>(evaluation.tokens);
  return evaluation;
}

Result<double> bigram_entropy_of(const TokenWindows& windows, int64_t target_limit) {
  int64_t left = target_limit;
  std::vector<int32_t> inputs(static_cast<size_t>(windows.sequence())), labels(inputs.size());
  std::vector<TokenPair> pairs;
  for (int64_t index = 0; index < windows.count() && left > 0; ++index) {
    STAGECOACH_RETURN_IF_ERROR(read_limited(windows, index, left, inputs.data(), labels.data()));
    for (size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] != kIgnoredLabel) pairs.emplace_back(inputs[i], labels[i]);
    }
  }
  return bigram_entropy(std::move(pairs));
}

}  // namespace stagecoach
