#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/random.h"
#include "model/gpt2_config.h"

namespace stagecoach::reference {

using Values = std::vector<double>;
/// Parameters or gradients by name, as in the Hugging Face file.
using NamedValues = std::map<std::string, Values>;

/// One micro-batch. `key.layer` and `key.site` are filled in: layers count from the embedding.
struct Gpt2Batch {
  int64_t sequences = 0;
  int64_t sequence = 0;
  std::vector<int32_t> ids;     ///< [sequences * sequence]
  std::vector<int32_t> labels;  ///< -1 is ignored
  RandomKey key;
  bool training = true;
  double loss_scale = 1;

  int64_t rows() const { return sequences * sequence; }
};

/// Losses of all rows, and gradients of loss_scale times their sum.
struct Gpt2Result {
  Values losses;
  NamedValues gradients;
  /// loss_scale times the sum.
  double total = 0;
};

/// GPT-2 in fp64 by plain loops, forward and backward in one piece: shares nothing with the model
/// but the random words and the order of random sites.
Gpt2Result run_gpt2(const Gpt2Config& config, const NamedValues& parameters,
                    const Gpt2Batch& batch);
/// The loss alone.
double gpt2_loss(const Gpt2Config& config, const NamedValues& parameters, const Gpt2Batch& batch);

}  // namespace stagecoach::reference
