#pragma once

#include <fmt/format.h>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "model/segment.h"

namespace stagecoach {

/// A chain under construction; activations and uses are numbered as they are added.
struct ChainBuilder {
  SegmentChainSpec spec;

  int activation(std::string name, DType dtype, int64_t columns, int64_t fixed_rows = 0) {
    spec.activations.push_back({std::move(name), dtype, columns, fixed_rows});
    return static_cast<int>(spec.activations.size()) - 1;
  }
  int use(int block, int site) {
    spec.uses.push_back({block, site});
    return static_cast<int>(spec.uses.size()) - 1;
  }
  template <typename SegmentType>
  void segment(std::string_view name, typename SegmentType::Options options) {
    spec.segments.push_back(
        std::make_unique<SegmentType>(fmt::format("{}.{}", spec.name, name), options));
  }
};

}  // namespace stagecoach
