#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace stagecoach {

/// A token and the one that follows it.
using TokenPair = std::pair<int32_t, int32_t>;

/// Conditional entropy in nats of the second of each pair, from their own counts: what a model that
/// sees one token back can reach at best on them. 0 for no pairs.
double bigram_entropy(std::vector<TokenPair> pairs);

}  // namespace stagecoach
