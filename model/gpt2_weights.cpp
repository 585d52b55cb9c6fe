#include "model/gpt2_weights.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <map>

#include "core/float_pieces.h"
#include "core/log.h"
#include "model/safetensors.h"

namespace stagecoach {

namespace {

constexpr std::string_view kPrefix = "transformer.";
constexpr std::string_view kHeadName = "lm_head.weight";
/// Names listed in one message.
constexpr size_t kMaxListed = 5;

std::string weights_path(const std::string& folder) {
  return folder + "/model.safetensors";
}

/// Of the embedding, which is the first block of every language model.
std::string token_name(const Network& network) {
  return network.blocks.front().parameters.front().name;
}

/// Constants that old files carry: the causal mask and the value of masked scores.
bool is_mask_buffer(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

std::string list_names(const std::vector<std::string>& names) {
  std::vector<std::string> shown(names.begin(), names.begin() + std::min(names.size(), kMaxListed));
  std::string text = fmt::format("'{}'", fmt::join(shown, "', '"));
  if (names.size() > shown.size()) text += fmt::format(" and {} more", names.size() - shown.size());
  return text;
}

std::vector<int64_t> shape_of(const ParameterInfo& parameter) {
  return {parameter.shape.dims.begin(), parameter.shape.dims.begin() + parameter.shape.rank};
}

/// Matches the tensors of one file with the parameters of a network.
class WeightLoader {
 public:
  WeightLoader(const SafetensorsFile& file, const Network& network)
      : file_(file), network_(network) {}

  Status load(const ParameterSink& sink) {
    STAGECOACH_RETURN_IF_ERROR(match());
    STAGECOACH_RETURN_IF_ERROR(check_tied_head());
    STAGECOACH_RETURN_IF_ERROR(check_parameters());
    STAGECOACH_RETURN_IF_ERROR(check_leftovers());
    for (size_t b = 0; b < network_.blocks.size(); ++b) {
      for (const ParameterInfo& parameter : network_.blocks[b].parameters) {
        STAGECOACH_RETURN_IF_ERROR(load_parameter(static_cast<int>(b), parameter, sink));
      }
    }
    return Status::ok();
  }

  bool is_prefixed() const { return is_prefixed_; }

 private:
  Status load_parameter(int block, const ParameterInfo& parameter, const ParameterSink& sink) {
    const SafetensorInfo& tensor = *found_.at(parameter.name);
    return for_each_float_piece(parameter.shape.element_count(),
                                [&](int64_t first, std::span<float> piece) -> Status {
                                  STAGECOACH_RETURN_IF_ERROR(file_.read_f32(tensor, first, piece));
                                  return sink(block, parameter.offset + first, piece);
                                });
  }

  Status refuse(std::string_view what) const {
    return invalid_argument(fmt::format("'{}': {}", file_.path(), what));
  }

  /// Of GPT-2 alone there are files whose names lack the prefix.
  std::string canonical_name(const std::string& name) const {
    bool has_prefix = token_name(network_).starts_with(kPrefix);
    if (!has_prefix || name == kHeadName || name.starts_with(kPrefix)) return name;
    return std::string(kPrefix) + name;
  }

  Status match() {
    for (const SafetensorInfo& tensor : file_.header().tensors) {
      is_prefixed_ |= tensor.name.starts_with(kPrefix);
      auto [entry, is_new] = found_.emplace(canonical_name(tensor.name), &tensor);
      if (is_new) continue;
      return refuse(fmt::format("tensors '{}' and '{}' are the same parameter", entry->second->name,
                                tensor.name));
    }
    return Status::ok();
  }

  Status check_tied_head() {
    auto head = found_.find(std::string(kHeadName));
    if (head == found_.end() || is_parameter(std::string(kHeadName))) return Status::ok();
    const SafetensorInfo* head_tensor = head->second;
    found_.erase(head);
    auto [tokens, is_only_copy] = found_.emplace(token_name(network_), head_tensor);
    if (is_only_copy) return Status::ok();
    std::span<const std::byte> a = file_.bytes(*head_tensor);
    std::span<const std::byte> b = file_.bytes(*tokens->second);
    bool equal = head_tensor->type == tokens->second->type && a.size() == b.size() &&
                 std::memcmp(a.data(), b.data(), a.size()) == 0;
    if (equal) return Status::ok();
    return refuse(
        fmt::format("tensors '{}' and '{}' differ, but the model's head is its token "
                    "embedding",
                    head_tensor->name, tokens->second->name));
  }

  Status check_parameters() const {
    std::vector<std::string> missing;
    for (const ParameterBlock& block : network_.blocks) {
      for (const ParameterInfo& parameter : block.parameters) {
        auto entry = found_.find(parameter.name);
        if (entry == found_.end()) {
          missing.push_back(parameter.name);
          continue;
        }
        const SafetensorInfo& tensor = *entry->second;
        std::vector<int64_t> expected = shape_of(parameter);
        if (tensor.shape != expected) {
          return refuse(fmt::format("tensor '{}' has shape {}, expected {}", tensor.name,
                                    format_shape(tensor.shape), format_shape(expected)));
        }
      }
    }
    if (missing.empty()) return Status::ok();
    return refuse(fmt::format("{} of the model's tensors are missing: {}", missing.size(),
                              list_names(missing)));
  }

  Status check_leftovers() const {
    std::vector<std::string> unknown;
    for (const auto& [name, tensor] : found_) {
      if (is_parameter(name) || is_mask_buffer(name)) continue;
      if (tensor->size == 0) {
        log_info(fmt::format("'{}': empty tensor '{}' is ignored", file_.path(), tensor->name));
        continue;
      }
      unknown.push_back(tensor->name);
    }
    if (unknown.empty()) return Status::ok();
    return refuse(fmt::format("{} tensors belong to no parameter of the model: {}", unknown.size(),
                              list_names(unknown)));
  }

  bool is_parameter(const std::string& name) const {
    for (const ParameterBlock& block : network_.blocks) {
      for (const ParameterInfo& parameter : block.parameters) {
        if (parameter.name == name) return true;
      }
    }
    return false;
  }

  const SafetensorsFile& file_;
  const Network& network_;
  std::map<std::string, const SafetensorInfo*> found_;  // by the network's name
  bool is_prefixed_ = false;
};

}  // namespace

Status load_weights(const std::string& folder, const Network& network, const ParameterSink& sink,
                    WeightNaming* naming) {
  STAGECOACH_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(weights_path(folder)));
  WeightLoader loader(file, network);
  STAGECOACH_RETURN_IF_ERROR(loader.load(sink));
  if (naming != nullptr) {
    *naming = loader.is_prefixed() ? WeightNaming::kPrefixed : WeightNaming::kBare;
  }
  return Status::ok();
}

Status save_weights(const std::string& folder, const Network& network,
                    const ParameterSource& source, WeightNaming naming) {
  std::vector<SafetensorsTensor> tensors;
  for (size_t b = 0; b < network.blocks.size(); ++b) {
    for (const ParameterInfo& parameter : network.blocks[b].parameters) {
      SafetensorsTensor tensor;
      tensor.name = parameter.name;
      if (naming == WeightNaming::kBare && tensor.name.starts_with(kPrefix)) {
        tensor.name.erase(0, kPrefix.size());
      }
      tensor.shape = shape_of(parameter);
      tensor.read_f32 = [&source, block = static_cast<int>(b), offset = parameter.offset](
                            int64_t first, std::span<float> out) {
        source(block, offset + first, out);
      };
      tensors.push_back(std::move(tensor));
    }
  }
  STAGECOACH_RETURN_IF_ERROR(make_folders(folder));
  return write_safetensors(weights_path(folder), std::move(tensors));
}

}  // namespace stagecoach
