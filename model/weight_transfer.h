#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "core/status.h"
#include "model/weight_folder.h"
#include "scheduler/network.h"

namespace stagecoach {

/// Whether the names in a file begin as its family's language model names them.
enum class WeightNaming : uint8_t {
  kPrefixed,  ///< "transformer.h.0.…", "model.layers.0.…"
  kBare,      ///< "h.0.…", "layers.0.…", as models without a head and old files have it
};

/// What files of a family of models may hold otherwise than the network names it. Plain data.
struct WeightRules {
  std::string_view prefix;                ///< that names may lack
  std::string_view embedding;             ///< what a tied head is the same as, or stands in for
  std::vector<std::string_view> buffers;  ///< ends of names of constants that old files carry
};

/// The head's name in every family. A network that has no parameter of this name ties its head.
inline constexpr std::string_view kHeadWeight = "lm_head.weight";

/// The rules for networks that name their parameters as these do; of none for other networks.
const WeightRules& weight_rules_of(const Network& network);

/// How the tensors of a folder are named.
WeightNaming naming_of(const WeightFolder& folder);

/// A parameter's name in a file of this naming.
std::string file_name_of(std::string_view parameter, WeightNaming naming);

/// Whether the tensors of a folder hold the experts of a layer stacked.
bool stacks_experts(const WeightFolder& folder);

/// One of a stack's tensors by itself.
struct ExpertTensor {
  std::string name;
  std::vector<int64_t> shape;
  int64_t first = 0;  ///< its first element in the stack
};
/// The tensors that hold experts one by one where `name` of this shape holds them stacked; none for
/// any other tensor.
std::vector<ExpertTensor> experts_one_by_one(std::string_view name,
                                             const std::vector<int64_t>& shape);

/// Takes fp32 parameters of `block` from element `offset` on. Disjoint ranges come from several
/// threads at once.
using ParameterSink =
    std::function<Status(int block, int64_t offset, std::span<const float> values)>;
/// Hears how many bytes of how many are read, a few times a second. Thread rule: any thread.
using LoadProgress = std::function<void(ByteCount read_bytes, ByteCount total_bytes)>;

/// What was loaded.
struct LoadedWeights {
  WeightNaming naming = WeightNaming::kPrefixed;
  ByteCount bytes = 0;  ///< of tensors read
  double seconds = 0;
};

/// Gives every parameter but adapters' of the weights in `folder` to `sink`, in pieces of up to 1
/// MiB, layer by layer, on several threads where there is much to read; no tensor is ever whole in
/// memory. Names with and without the family's prefix are read; buffers of its rules and unknown
/// empty tensors are skipped; a tied head must equal the token embedding, or may stand in for it;
/// experts may be stacked or one by one, whichever way the network has them; matrices packed as
/// MXFP4 (`NAME_blocks` with `NAME_scales`) are unpacked and transposed, as GPT-OSS has them, a
/// matrix of packed bytes in memory for each thread. Any other tensor, a missing one, or one of
/// another shape or dtype is refused by name before `sink` is called. Errors: those of
/// `WeightFolder::open` and `SafetensorsFile::read_f32`.
Result<LoadedWeights> load_weights(const std::string& folder, const Network& network,
                                   const ParameterSink& sink, const LoadProgress& progress = {});

/// What is read to match tensors with parameters: headers, and with kTiedHeads a tied head and its
/// embedding where a folder has both, which must be equal.
enum class WeightProof : uint8_t { kTiedHeads, kHeaders };

/// Ok when `load_weights` would find every parameter: for refusals before memory is taken.
Status check_weights(const std::string& folder, const Network& network,
                     WeightProof proof = WeightProof::kTiedHeads);

}  // namespace stagecoach
