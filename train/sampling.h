#pragma once

#include <cstdint>
#include <span>

namespace stagecoach {

/// How the next token is drawn.
struct SamplingOptions {
  double temperature = 1.0;  ///< logits are divided by it; 0: always the likeliest token
  double top_p = 1.0;        ///< least probability mass kept, likeliest first; in (0, 1]
};

/// Draws a token id from `logits`: `uniform` in [0, 1) selects it from the cumulative distribution
/// of the kept tokens, likeliest first, the lower id first among equals. Pure, so equal arguments
/// give equal tokens. Logits that are not finite are never drawn, unless all are: then -1.
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform);

}  // namespace stagecoach
