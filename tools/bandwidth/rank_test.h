#pragma once

#include <optional>
#include <span>

namespace stagecoach {

/// Two-sided probability that chance ranks samples of the same kind as far apart as these
/// (Mann-Whitney; ties share their mean rank): exact, counted over all divisions of the samples
/// into two such sides, up to 40 of them; beyond by the normal approximation. Nothing where even
/// samples that do not overlap would not get below 5 %: 3 against 3 say 10 %. Pure.
std::optional<double> rank_test(std::span<const double> one, std::span<const double> other);

}  // namespace stagecoach
