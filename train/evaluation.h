#pragma once

#include <cstdint>

#include "core/status.h"
#include "train/token_windows.h"
#include "train/trainer.h"

namespace stagecoach {

/// Loss over a data set.
struct Evaluation {
  double loss = 0;     ///< mean over targets, nats per token
  int64_t tokens = 0;  ///< targets that counted
};

/// Loss of the trainer's model on `windows`, front to back, at most `target_limit` targets: every
/// token that may be predicted is once, from what its sequence shows before it. `batch` and the
/// windows' sequence are those of the trainer's options. Errors: cancelled when an interrupt
/// arrives (see InterruptGuard), those of `Trainer::evaluate` and of the data files.
Result<Evaluation> evaluate_windows(Trainer& trainer, const TokenWindows& windows, int64_t batch,
                                    int64_t target_limit);

/// Bigram entropy (see bigram_entropy) of the same targets and the tokens before them: the loss
/// that a model which sees one token back can reach on them.
Result<double> bigram_entropy_of(const TokenWindows& windows, int64_t target_limit);

}  // namespace stagecoach
