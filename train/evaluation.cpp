#include "train/evaluation.h"

#include <algorithm>
#include <vector>

#include "train/interrupt.h"

namespace stagecoach {

namespace {

constexpr int32_t kIgnored = -1;

/// Fills one window from position `start` on; what lies behind `end` is padding that does not
/// count.
void fill_window(std::span<const int32_t> tokens, int64_t start, int64_t end, int64_t sequence,
                 int32_t* inputs, int32_t* labels) {
  for (int64_t i = 0; i < sequence; ++i) {
    bool counts = start + i < end;
    inputs[i] = counts ? tokens[static_cast<size_t>(start + i)] : 0;
    labels[i] = counts ? tokens[static_cast<size_t>(start + i + 1)] : kIgnored;
  }
}

}  // namespace

Result<Evaluation> evaluate_tokens(Trainer& trainer, std::span<const int32_t> tokens,
                                   int64_t sequence, int64_t batch, int64_t token_limit) {
  Evaluation evaluation;
  int64_t targets = std::min(static_cast<int64_t>(tokens.size()) - 1, token_limit);
  double sum = 0.0;
  for (int64_t start = 0; start < targets; start += batch * sequence) {
    if (InterruptGuard::is_interrupted()) return cancelled("evaluation was interrupted");
    int64_t left = (targets - start + sequence - 1) / sequence;
    int64_t count = std::min(batch, left);
    std::vector<int32_t> inputs(static_cast<size_t>(count * sequence));
    std::vector<int32_t> labels(inputs.size());
    for (int64_t i = 0; i < count; ++i) {
      fill_window(tokens, start + i * sequence, targets, sequence, inputs.data() + i * sequence,
                  labels.data() + i * sequence);
    }
    Shape shape{count, sequence};
    STAGECOACH_ASSIGN_OR_RETURN(StepLoss loss, trainer.evaluate(HostTensor::of(inputs, shape),
                                                                HostTensor::of(labels, shape)));
    sum += loss.loss * static_cast<double>(loss.targets);
    evaluation.tokens += loss.targets;
  }
  if (evaluation.tokens > 0) evaluation.loss = sum / static_cast<double>(evaluation.tokens);
  return evaluation;
}

}  // namespace stagecoach
