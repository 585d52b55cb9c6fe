#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "hal/tensor.h"

namespace stagecoach {

/// How a parameter starts when no weights are loaded.
struct Initializer {
  enum class Kind : uint8_t { kZeros, kOnes, kNormal, kUniform } kind = Kind::kZeros;
  double standard_deviation = 0;  ///< kNormal only
  double bound = 0;               ///< kUniform only: from -bound to bound
};

/// One named tensor inside a block.
struct ParameterInfo {
  std::string name;  ///< as in the Hugging Face file: "transformer.h.0.ln_1.weight"
  Shape shape;
  int64_t offset = 0;  ///< first element inside the block
  bool decay = true;   ///< whether weight decay applies (norms and biases: no)
  Initializer initializer;
};

/// Parameters that share storage and are used at one or more sites: the unit of transfers, versions
/// and updates. A tied embedding and head are one block with two sites. Plain data.
struct ParameterBlock {
  /// Tensors start at multiples of this many elements, so that rows stay aligned for vector code.
  static constexpr int64_t kAlignmentElements = 32;

  std::string name;
  std::vector<ParameterInfo> parameters;
  int64_t element_count = 0;  ///< with alignment gaps, which stay zero
  int site_count = 0;         ///< layers that use it
  /// Not trained: it goes up but has no gradient, no update and no moments.
  bool is_frozen = false;
  /// Of a frozen block: no copy of it is kept in memory, devices read it from mapped files.
  bool is_mapped = false;
  /// Low-rank additions to another block: trained, and kept in files of their own.
  bool is_adapter = false;
  /// A frozen block without parameters is a constant: it travels, but is neither counted, saved nor
  /// loaded. This yields all its elements, exact in the network's dtype, when a run begins.
  std::function<std::vector<float>()> constant = {};

  /// Appends a tensor and returns its index.
  int add(std::string parameter_name, Shape shape, bool decay, Initializer initializer);
  /// Elements without alignment gaps.
  int64_t parameter_count() const;
};

}  // namespace stagecoach
