#include "model/lora_blocks.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

#include "core/suggest.h"

namespace stagecoach {

LoraBlocks::LoraBlocks(LoraOptions options, DType dtype)
    : options_(std::move(options)),
      dtype_(dtype),
      factors_(options_.is_on() ? options_.scale() : 1, options_.rank, kMostParts, dtype) {}

void LoraBlocks::begin(Network& network) {
  if (!options_.is_on()) return;
  for (ParameterBlock& block : network.blocks) block.is_frozen = true;
  factors_block_ = static_cast<int>(network.blocks.size());
  ParameterBlock factors;
  factors.name = "lora";
  factors.element_count = factors_.element_count();
  factors.is_frozen = true;
  factors.constant = [factors = factors_] { return factors.values(); };
  network.blocks.push_back(std::move(factors));
}

void LoraBlocks::begin_layer(ChainBuilder& chain, const std::string& prefix) {
  if (!options_.is_on()) return;
  prefix_ = prefix;
  block_ = ParameterBlock{};
  block_.name = chain.spec.name + ".adapters";
  block_.site_count = 1;
  block_.is_adapter = true;
  factors_use_ = chain.use(factors_block_, layers_);
  adapter_use_ = chain.use(factors_block_ + 1 + layers_, 0);
}

void LoraBlocks::end_layer(Network& network) {
  if (!options_.is_on()) return;
  ++layers_;
  network.blocks[static_cast<size_t>(factors_block_)].site_count = layers_;
  network.blocks.push_back(std::move(block_));
}

void LoraBlocks::add_activations(ChainBuilder& chain, std::string_view name,
                                 LinearAdapter& adapter) const {
  int64_t columns = adapter.inner_columns();
  adapter.inner = chain.activation(fmt::format("{}.adapted", name), dtype_, columns);
  adapter.again = chain.activation(fmt::format("{}.adapted_again", name), dtype_, columns);
  bool is_whole = adapter.parts.size() == 1 && adapter.parts[0].columns == adapter.out_columns;
  if (is_whole && options_.scale() == 1) return;
  auto fixed = [&](std::string_view what, DType dtype, int64_t rows) {
    return chain.activation(fmt::format("{}.{}", name, what), dtype, columns, rows);
  };
  adapter.expanded = fixed("expanded", dtype_, adapter.out_columns);
  adapter.product = fixed("second_grad", DType::kF32, adapter.out_columns);
  adapter.factor = fixed("factor", DType::kF32, adapter.rank);
}

std::optional<LinearAdapter> LoraBlocks::add(ChainBuilder& chain, std::string_view name,
                                             const std::vector<Module>& modules,
                                             int64_t in_columns) {
  if (!options_.is_on()) return std::nullopt;
  LinearAdapter adapter;
  adapter.rank = options_.rank;
  adapter.in_columns = in_columns;
  std::vector<std::string> names;
  for (const auto& [module, columns] : modules) {
    std::string full = fmt::format("{}.{}", prefix_, module);
    modules_.emplace(module.substr(module.rfind('.') + 1));
    for (const std::string& target : options_.targets) {
      LoraOptions one{options_.rank, options_.alpha, options_.uses_rslora, {target}};
      if (one.has_target(full)) found_.insert(target);
    }
    if (options_.has_target(full)) {
      adapter.parts.push_back({adapter.out_columns, columns, {}});
      names.push_back(std::move(full));
    }
    adapter.out_columns += columns;
  }
  if (names.empty()) return std::nullopt;
  bool joins =
      names.size() == 1 || options_.rank * in_columns % ParameterBlock::kAlignmentElements == 0;
  if (!joins && failure_.is_ok()) {
    failure_ = unimplemented(fmt::format(
        "rank {} for {}: this version lays out adapters of several modules of one input only where "
        "rank times its {} columns is a multiple of {}; choose a rank that is a multiple of {}",
        options_.rank, fmt::join(names, ", "), in_columns, ParameterBlock::kAlignmentElements,
        ParameterBlock::kAlignmentElements /
            std::gcd(in_columns, ParameterBlock::kAlignmentElements)));
  }
  // As PEFT starts: A by Kaiming's rule for a slope of sqrt(5), B zero.
  Initializer uniform{Initializer::Kind::kUniform};
  uniform.bound = 1 / std::sqrt(static_cast<double>(in_columns));
  adapter.first = {adapter_use_, static_cast<int>(block_.parameters.size())};
  for (const std::string& module : names) {
    block_.add(module + ".lora_A.weight", Shape{options_.rank, in_columns}, true, uniform);
  }
  auto count = static_cast<int>(adapter.parts.size());
  adapter.factors = {factors_use_, 0};
  adapter.factor_terms = factors_.terms();
  for (int part = 0; part < count; ++part) {
    LinearAdapter::Part& of_module = adapter.parts[static_cast<size_t>(part)];
    of_module.second = {adapter_use_,
                        block_.add(names[static_cast<size_t>(part)] + ".lora_B.weight",
                                   Shape{of_module.columns, options_.rank}, true, {})};
    for (int term = 0; term < factors_.terms(); ++term) {
      adapter.factor_places.push_back(factors_.place(count, part, term));
    }
  }
  add_activations(chain, name, adapter);
  return adapter;
}

Status LoraBlocks::check() const {
  if (!options_.is_on()) return Status::ok();
  if (!failure_.is_ok()) return failure_;
  std::vector<std::string> known(modules_.begin(), modules_.end());
  for (const std::string& target : options_.targets) {
    if (found_.contains(target)) continue;
    std::string nearest = nearest_name(target, known);
    return invalid_argument(fmt::format(
        "LoRA target '{}' names no module of the layers that can have adapters{}; those are {}, or "
        "\"{}\" for all of them",
        target, nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest),
        fmt::join(known, ", "), kAllLinear));
  }
  return Status::ok();
}

}  // namespace stagecoach
