#include "train/evaluation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "train/batch_sampler.h"
#include "train/bigram_entropy.h"
#include "train/interrupt.h"
#include "train/labels.h"

namespace stagecoach {

namespace {

/// Reads sequence `index` into row `row` of the batch; of its targets, those beyond `left` do not
/// count, and `left` goes down.
Status read_limited(const TokenWindows& windows, int64_t index, int64_t row, int64_t& left,
                    TokenBatch& batch) {
  int64_t first = row * windows.sequence();
  int32_t* labels = batch.labels.data() + first;
  int32_t* starts = batch.document_starts.empty() ? nullptr : batch.document_starts.data() + first;
  STAGECOACH_RETURN_IF_ERROR(windows.read(index, batch.inputs.data() + first, labels, starts));
  for (int64_t i = 0; i < windows.sequence(); ++i) {
    if (labels[i] == kIgnoredLabel) continue;
    if (left == 0) labels[i] = kIgnoredLabel;
    left = std::max<int64_t>(left - 1, 0);
  }
  return Status::ok();
}

void resize(const TokenWindows& windows, int64_t sequences, TokenBatch& batch) {
  batch.inputs.resize(static_cast<size_t>(sequences * windows.sequence()));
  batch.labels.resize(batch.inputs.size());
  bool has_documents = windows.data().packing == Packing::kDocuments;
  batch.document_starts.resize(has_documents ? batch.inputs.size() : 0);
}

}  // namespace

Result<Evaluation> evaluate_windows(Trainer& trainer, const TokenWindows& windows, int64_t batch,
                                    int64_t target_limit) {
  Evaluation evaluation;
  double sum = 0.0;
  int64_t left = target_limit;
  TokenBatch tokens;
  for (int64_t first = 0; first < windows.count() && left > 0; first += batch) {
    if (InterruptGuard::is_interrupted()) return cancelled("evaluation was interrupted");
    int64_t most = std::min(batch, windows.count() - first);
    int64_t count = 0;
    resize(windows, most, tokens);
    for (; count < most && left > 0; ++count) {
      STAGECOACH_RETURN_IF_ERROR(read_limited(windows, first + count, count, left, tokens));
    }
    resize(windows, count, tokens);
    Shape shape{count, windows.sequence()};
    STAGECOACH_ASSIGN_OR_RETURN(
        StepLoss loss,
        trainer.evaluate(HostTensor::of(tokens.inputs, shape), HostTensor::of(tokens.labels, shape),
                         HostTensor::of_any(tokens.document_starts, shape)));
    sum += loss.loss * static_cast<double>(loss.targets);
    evaluation.tokens += loss.targets;
  }
  if (evaluation.tokens > 0) evaluation.loss = sum / static_cast<double>(evaluation.tokens);
  return evaluation;
}

Result<double> bigram_entropy_of(const TokenWindows& windows, int64_t target_limit) {
  int64_t left = target_limit;
  TokenBatch batch;
  resize(windows, 1, batch);
  std::vector<TokenPair> pairs;
  for (int64_t index = 0; index < windows.count() && left > 0; ++index) {
    STAGECOACH_RETURN_IF_ERROR(read_limited(windows, index, 0, left, batch));
    for (size_t i = 0; i < batch.labels.size(); ++i) {
      if (batch.labels[i] != kIgnoredLabel) pairs.emplace_back(batch.inputs[i], batch.labels[i]);
    }
  }
  return bigram_entropy(std::move(pairs));
}

}  // namespace stagecoach
