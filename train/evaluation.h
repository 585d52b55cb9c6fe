#pragma once

#include <cstdint>
#include <span>

#include "core/status.h"
#include "train/trainer.h"

namespace stagecoach {

/// Loss over a token sequence.
struct Evaluation {
  double loss = 0;     ///< mean over targets, nats per token
  int64_t tokens = 0;  ///< targets that counted
};

/// Loss of the trainer's model on `tokens`, cut into windows of `sequence` that start where the
/// last one ended: every token but the first is predicted once, from what its window shows before
/// it. `batch` and `sequence` are those of the trainer's options; at most `token_limit` targets
/// count. Errors: cancelled when an interrupt arrives (see InterruptGuard), those of
/// `Trainer::evaluate`.
Result<Evaluation> evaluate_tokens(Trainer& trainer, std::span<const int32_t> tokens,
                                   int64_t sequence, int64_t batch, int64_t token_limit);

}  // namespace stagecoach
