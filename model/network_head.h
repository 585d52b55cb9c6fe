#pragma once

#include <cstdint>

namespace stagecoach {

/// What the last layer of a language model's network yields.
enum class NetworkHead : uint8_t {
  kLoss,    ///< cross-entropy loss of each row, for training and evaluation
  kLogits,  ///< fp32 logits [rows, vocabulary], for generation; without dropout and backward pass
};

}  // namespace stagecoach
