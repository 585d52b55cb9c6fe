#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "model/chain_builder.h"
#include "model/linear_adapter.h"
#include "model/lora_options.h"
#include "scheduler/network.h"

namespace stagecoach {

/// Adds adapters to a network under construction: each layer gets a trained block of its own,
/// behind all blocks of the base, which are frozen. Without options it adds nothing.
///
///   begin(network);                              // once all blocks of the base are there
///   for each layer: begin_layer(…); add(…) for each product; end_layer(network);
///   check();
class LoraBlocks {
 public:
  /// A module whose columns are part of a product: "self_attn.q_proj" and how many.
  using Module = std::pair<std::string_view, int64_t>;
  /// Most modules of one product.
  static constexpr int kMostParts = 3;

  LoraBlocks(LoraOptions options, DType dtype);

  void begin(Network& network);
  /// `prefix` is that of the layer's modules: "model.layers.0". Declares what the layer uses,
  /// behind its frozen blocks.
  void begin_layer(ChainBuilder& chain, const std::string& prefix);
  /// Adapters of a product of `modules` side by side; nothing where no target names any.
  std::optional<LinearAdapter> add(ChainBuilder& chain, std::string_view name,
                                   const std::vector<Module>& modules, int64_t in_columns);
  void end_layer(Network& network);

  /// Invalid argument for targets that named nothing, with the nearest names, and for ranks that
  /// this version does not lay out.
  Status check() const;

 private:
  void add_activations(ChainBuilder& chain, std::string_view name, LinearAdapter& adapter) const;

  LoraOptions options_;
  DType dtype_;
  AdapterFactors factors_;
  int factors_block_ = -1;
  int layers_ = 0;
  std::string prefix_;
  int factors_use_ = -1, adapter_use_ = -1;
  ParameterBlock block_;
  std::set<std::string> found_, modules_;
  Status failure_;
};

}  // namespace stagecoach
