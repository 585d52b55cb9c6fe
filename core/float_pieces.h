#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/status.h"

namespace stagecoach {

/// Goes through `count` fp32 elements that lie nowhere as such, one after the other by way of a
/// buffer of 1 MiB: `visit(first, buffer)` is called for buffer.size() elements from `first` on and
/// returns a Status. Ends with the first failure.
template <typename Visit>
Status for_each_float_piece(int64_t count, Visit visit) {
  constexpr int64_t kPieceElements = 256 * 1024;
  std::vector<float> buffer(static_cast<size_t>(std::min(count, kPieceElements)));
  for (int64_t first = 0; first < count; first += kPieceElements) {
    int64_t size = std::min(kPieceElements, count - first);
    STAGECOACH_RETURN_IF_ERROR(
        visit(first, std::span<float>(buffer.data(), static_cast<size_t>(size))));
  }
  return Status::ok();
}

}  // namespace stagecoach
