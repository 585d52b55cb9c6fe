#include "model/weight_match.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>
#include <map>
#include <set>

#include "core/float_pieces.h"
#include "core/log.h"
#include "model/mxfp4.h"

namespace stagecoach {

namespace {

/// Names listed in one message.
constexpr size_t kMaxListed = 5;
/// What to do about tensors that are not those of config.json.
constexpr std::string_view kAdvice =
    "; is config.json the one that these weights were saved with? Fetch the folder anew";

/// Experts whose matrices are stacked in one tensor, and the names they have one by one: the parts
/// of an expert lie one after the other.
struct ExpertRule {
  std::string_view stacked;
  std::array<std::string_view, 2> parts;
  size_t part_count;
};

/// What a parameter's name ends with where its matrices are packed.
constexpr std::string_view kBlocks = "_blocks";
constexpr std::string_view kScales = "_scales";

constexpr std::string_view kExperts = ".experts.";
constexpr std::string_view kStackBias = ".experts.gate_up_proj_bias";
constexpr ExpertRule kExpertRules[] = {
    {"gate_up_proj", {"gate_proj.weight", "up_proj.weight"}, 2},
    {"down_proj", {"down_proj.weight", ""}, 1},
};

std::string list_names(const std::vector<std::string>& names) {
  std::vector<std::string> shown(names.begin(), names.begin() + std::min(names.size(), kMaxListed));
  std::string text = fmt::format("'{}'", fmt::join(shown, "', '"));
  if (names.size() > shown.size()) text += fmt::format(" and {} more", names.size() - shown.size());
  return text;
}

std::vector<int64_t> shape_of(const ParameterInfo& parameter) {
  return {parameter.shape.dims.begin(), parameter.shape.dims.begin() + parameter.shape.rank};
}

int64_t element_count(const SafetensorInfo& tensor) {
  return tensor.size / safetensors_type_size(tensor.type);
}

/// Matches the tensors of a folder with the parameters of a network.
class WeightMatcher {
 public:
  WeightMatcher(const WeightFolder& folder, const Network& network, WeightProof proof)
      : folder_(folder), network_(network), proof_(proof), rules_(weight_rules_of(network)) {}

  Result<std::vector<WeightPart>> match() {
    STAGECOACH_RETURN_IF_ERROR(collect_names());
    STAGECOACH_RETURN_IF_ERROR(settle_tied_head());
    for (size_t b = 0; b < network_.blocks.size(); ++b) {
      if (network_.blocks[b].is_adapter) continue;
      for (const ParameterInfo& parameter : network_.blocks[b].parameters) {
        STAGECOACH_RETURN_IF_ERROR(match_parameter(static_cast<int>(b), parameter));
      }
    }
    if (!missing_.empty()) {
      return refuse(fmt::format("{} of the model's tensors are missing: {}{}", missing_.size(),
                                list_names(missing_), kAdvice));
    }
    STAGECOACH_RETURN_IF_ERROR(check_leftovers());
    return std::move(parts_);
  }

 private:
  Status refuse(std::string_view what) const {
    return invalid_argument(fmt::format("'{}': {}", folder_.path(), what));
  }

  std::string canonical_name(const std::string& name) const {
    if (name == kHeadWeight || name.starts_with(rules_.prefix)) return name;
    return std::string(rules_.prefix) + name;
  }

  Status collect_names() {
    for (const FolderTensor& tensor : folder_.tensors()) {
      auto [entry, is_new] = found_.emplace(canonical_name(tensor.info->name), &tensor);
      if (is_new) continue;
      return refuse(fmt::format("tensors '{}' and '{}' are the same parameter",
                                entry->second->info->name, tensor.info->name));
    }
    return Status::ok();
  }

  const FolderTensor* find(const std::string& name) const {
    auto entry = found_.find(name);
    return entry == found_.end() ? nullptr : entry->second;
  }

  /// Lets a tied head stand in for a missing embedding, or compares the two.
  Status settle_tied_head() {
    const FolderTensor* head = find(std::string(kHeadWeight));
    if (head == nullptr || rules_.embedding.empty() || has_own_head()) return Status::ok();
    auto [tokens, is_only_copy] = found_.emplace(std::string(rules_.embedding), head);
    found_.erase(std::string(kHeadWeight));
    if (is_only_copy) return Status::ok();
    const FolderTensor& embedding = *tokens->second;
    if (head->info->shape != embedding.info->shape) {
      return refuse(
          fmt::format("tensor '{}' has shape {}, expected {}, that of '{}', which the model's head "
                      "is tied to{}",
                      head->info->name, format_shape(head->info->shape),
                      format_shape(embedding.info->shape), embedding.info->name, kAdvice));
    }
    STAGECOACH_ASSIGN_OR_RETURN(bool equal, are_equal(*head, embedding));
    if (equal) return Status::ok();
    return refuse(
        fmt::format("tensors '{}' and '{}' differ, but the model's head is its token embedding; "
                    "if they were trained apart, set tie_word_embeddings to false in config.json",
                    head->info->name, embedding.info->name));
  }

  bool has_own_head() const {
    for (const ParameterBlock& block : network_.blocks) {
      for (const ParameterInfo& parameter : block.parameters) {
        if (parameter.name == kHeadWeight) return true;
      }
    }
    return false;
  }

  /// GPT-OSS's experts, which alone have biases, lie otherwise in stacks than one by one.
  bool has_stacks_only() const {
    for (const ParameterBlock& block : network_.blocks) {
      for (const ParameterInfo& parameter : block.parameters) {
        if (parameter.name.ends_with(kStackBias)) return true;
      }
    }
    return false;
  }

  Result<bool> are_equal(const FolderTensor& a, const FolderTensor& b) const {
    if (proof_ == WeightProof::kHeaders) return true;
    bool equal = true;
    std::vector<float> other;
    Status status = for_each_float_piece(
        element_count(*a.info), [&](int64_t first, std::span<float> piece) -> Status {
          other.resize(piece.size());
          STAGECOACH_RETURN_IF_ERROR(a.file->read_f32(*a.info, first, piece));
          STAGECOACH_RETURN_IF_ERROR(b.file->read_f32(*b.info, first, other));
          equal &= std::equal(piece.begin(), piece.end(), other.begin());
          return Status::ok();
        });
    if (!status.is_ok()) return status;
    return equal;
  }

  Status match_parameter(int block, const ParameterInfo& parameter) {
    const FolderTensor* tensor = find(parameter.name);
    if (tensor != nullptr) return add(*tensor, shape_of(parameter), block, parameter.offset);
    const FolderTensor* blocks = find(parameter.name + std::string(kBlocks));
    const FolderTensor* scales = find(parameter.name + std::string(kScales));
    if (blocks != nullptr || scales != nullptr) {
      return match_packed(block, parameter, blocks, scales);
    }
    size_t experts = parameter.name.find(kExperts);
    if (experts != std::string::npos && !has_stacks_only()) {
      std::string folder_name = parameter.name.substr(0, experts + kExperts.size());
      std::string rest = parameter.name.substr(folder_name.size());
      for (const ExpertRule& rule : kExpertRules) {
        if (rest == rule.stacked && parameter.shape.rank == 3) {
          return match_stack(block, parameter, folder_name, rule);
        }
        const FolderTensor* stack = find(folder_name + std::string(rule.stacked));
        if (stack == nullptr || parameter.shape.rank != 2) continue;
        for (size_t part = 0; part < rule.part_count; ++part) {
          int64_t expert = expert_number(rest, rule.parts[part]);
          if (expert < 0) continue;
          return match_slice(*stack, block, parameter, expert, rule, part);
        }
      }
    }
    missing_.push_back(parameter.name);
    return Status::ok();
  }

  /// Packed matrices, each transposed: [E, columns, rows] of the network.
  Status match_packed(int block, const ParameterInfo& parameter, const FolderTensor* blocks,
                      const FolderTensor* scales) {
    if (blocks == nullptr || scales == nullptr) {
      std::string_view found = blocks == nullptr ? kScales : kBlocks;
      std::string_view lacks = blocks == nullptr ? kBlocks : kScales;
      return refuse(
          fmt::format("tensor '{0}{1}' is there without '{0}{2}', which it is read with{3}",
                      parameter.name, found, lacks, kAdvice));
    }
    std::vector<int64_t> shape = shape_of(parameter);
    if (shape.size() != 3 || shape[1] % kMxfp4GroupColumns != 0) {
      return refuse(
          fmt::format("tensor '{}' is packed, but '{}' of the model has shape {}, "
                      "expected matrices of a multiple of {} rows",
                      blocks->info->name, parameter.name, format_shape(shape), kMxfp4GroupColumns));
    }
    int64_t groups = shape[1] / kMxfp4GroupColumns;
    STAGECOACH_RETURN_IF_ERROR(
        check_packed(*blocks, {shape[0], shape[2], groups, kMxfp4GroupBytes}));
    STAGECOACH_RETURN_IF_ERROR(check_packed(*scales, {shape[0], shape[2], groups}));
    for (int64_t i = 0; i < shape[0]; ++i) {
      int64_t count = shape[1] * shape[2];
      parts_.push_back({blocks, i * count, count, block, parameter.offset + i * count, scales});
    }
    used_.insert({blocks->info, scales->info});
    return Status::ok();
  }

  Status check_packed(const FolderTensor& tensor, const std::vector<int64_t>& shape) const {
    const SafetensorInfo& info = *tensor.info;
    if (info.type == SafetensorsType::kU8 && info.shape == shape) return Status::ok();
    return refuse(fmt::format("tensor '{}' is {} {}, expected U8 {}{}", info.name,
                              safetensors_type_name(info.type), format_shape(info.shape),
                              format_shape(shape), kAdvice));
  }

  /// The number in "3.gate_proj.weight", where the end is `part`; else -1.
  static int64_t expert_number(std::string_view rest, std::string_view part) {
    int64_t number = -1;
    auto [next, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc() || number < 0) return -1;
    rest.remove_prefix(static_cast<size_t>(next - rest.data()));
    return rest.size() == part.size() + 1 && rest[0] == '.' && rest.ends_with(part) ? number : -1;
  }

  /// A stack of the network from experts one by one.
  Status match_stack(int block, const ParameterInfo& parameter, const std::string& folder_name,
                     const ExpertRule& rule) {
    auto part_count = static_cast<int64_t>(rule.part_count);
    int64_t rows = parameter.shape.dims[1] / part_count;
    int64_t columns = parameter.shape.dims[2];
    for (int64_t expert = 0; expert < parameter.shape.dims[0]; ++expert) {
      for (size_t part = 0; part < rule.part_count; ++part) {
        std::string name = fmt::format("{}{}.{}", folder_name, expert, rule.parts[part]);
        int64_t index = expert * part_count + static_cast<int64_t>(part);
        if (const FolderTensor* tensor = find(name); tensor == nullptr) {
          missing_.push_back(name);
        } else {
          STAGECOACH_RETURN_IF_ERROR(
              add(*tensor, {rows, columns}, block, parameter.offset + index * rows * columns));
        }
      }
    }
    return Status::ok();
  }

  /// An expert of the network from a stack.
  Status match_slice(const FolderTensor& stack, int block, const ParameterInfo& parameter,
                     int64_t expert, const ExpertRule& rule, size_t part) {
    auto part_count = static_cast<int64_t>(rule.part_count);
    int64_t rows = parameter.shape.dims[0];
    int64_t columns = parameter.shape.dims[1];
    const std::vector<int64_t>& found = stack.info->shape;
    bool fits = found.size() == 3 && expert < found[0] && found[1] == rows * part_count &&
                found[2] == columns;
    if (!fits) {
      return refuse(fmt::format("tensor '{}' has shape {}, but '{}' of the model has {}{}",
                                stack.info->name, format_shape(found), parameter.name,
                                format_shape(shape_of(parameter)), kAdvice));
    }
    STAGECOACH_RETURN_IF_ERROR(check_type(*stack.info));
    int64_t index = expert * part_count + static_cast<int64_t>(part);
    used_.insert(stack.info);
    parts_.push_back(
        {&stack, index * rows * columns, rows * columns, block, parameter.offset, nullptr});
    return Status::ok();
  }

  Status check_type(const SafetensorInfo& tensor) const {
    if (is_float(tensor.type)) return Status::ok();
    return unimplemented(fmt::format("'{}': tensor '{}' is {}, expected F32, BF16 or F16",
                                     folder_.path(), tensor.name,
                                     safetensors_type_name(tensor.type)));
  }

  /// A whole tensor.
  Status add(const FolderTensor& tensor, const std::vector<int64_t>& shape, int block,
             int64_t offset) {
    const SafetensorInfo& info = *tensor.info;
    if (info.shape != shape) {
      return refuse(fmt::format("tensor '{}' has shape {}, expected {}{}", info.name,
                                format_shape(info.shape), format_shape(shape), kAdvice));
    }
    STAGECOACH_RETURN_IF_ERROR(check_type(info));
    used_.insert(&info);
    parts_.push_back({&tensor, 0, element_count(info), block, offset, nullptr});
    return Status::ok();
  }

  bool is_buffer(std::string_view name) const {
    return std::any_of(rules_.buffers.begin(), rules_.buffers.end(),
                       [&](std::string_view end) { return name.ends_with(end); });
  }

  Status check_leftovers() const {
    std::vector<std::string> unknown;
    for (const auto& [name, tensor] : found_) {
      if (used_.contains(tensor->info) || is_buffer(name)) continue;
      if (tensor->info->size == 0) {
        log_info(
            fmt::format("'{}': empty tensor '{}' is ignored", folder_.path(), tensor->info->name));
        continue;
      }
      unknown.push_back(tensor->info->name);
    }
    if (unknown.empty()) return Status::ok();
    return refuse(fmt::format("{} tensors belong to no parameter of the model: {}{}",
                              unknown.size(), list_names(unknown), kAdvice));
  }

  const WeightFolder& folder_;
  const Network& network_;
  const WeightProof proof_;
  const WeightRules& rules_;
  std::map<std::string, const FolderTensor*> found_;  // by the network's name
  std::set<const SafetensorInfo*> used_;
  std::vector<std::string> missing_;
  std::vector<WeightPart> parts_;
};

}  // namespace

ByteCount WeightPart::size_bytes() const {
  if (scales == nullptr) return count * safetensors_type_size(tensor->info->type);
  return count / kMxfp4GroupColumns * (kMxfp4GroupBytes + 1);
}

bool stacks_experts(const WeightFolder& folder) {
  return std::any_of(folder.tensors().begin(), folder.tensors().end(),
                     [](const FolderTensor& tensor) {
                       return !experts_one_by_one(tensor.info->name, tensor.info->shape).empty();
                     });
}

std::vector<ExpertTensor> experts_one_by_one(std::string_view name,
                                             const std::vector<int64_t>& shape) {
  std::vector<ExpertTensor> experts;
  size_t folder = name.find(kExperts);
  if (folder == std::string_view::npos || shape.size() != 3) return experts;
  size_t end = folder + kExperts.size();
  for (const ExpertRule& rule : kExpertRules) {
    auto part_count = static_cast<int64_t>(rule.part_count);
    if (name.substr(end) != rule.stacked || shape[1] % part_count != 0) continue;
    int64_t rows = shape[1] / part_count;
    for (int64_t index = 0; index < shape[0] * part_count; ++index) {
      auto part = static_cast<size_t>(index % part_count);
      experts.push_back(
          {fmt::format("{}{}.{}", name.substr(0, end), index / part_count, rule.parts[part]),
           {rows, shape[2]},
           index * rows * shape[2]});
    }
  }
  return experts;
}

Result<std::vector<WeightPart>> match_weights(const WeightFolder& folder, const Network& network,
                                              WeightProof proof) {
  return WeightMatcher(folder, network, proof).match();
}

}  // namespace stagecoach
