#include "model/mapped_weights.h"

#include <fmt/format.h>
#include <map>

#include "model/weight_folder.h"
#include "model/weight_match.h"

namespace stagecoach {

namespace {

SafetensorsType type_of(DType dtype) {
  if (dtype == DType::kF32) return SafetensorsType::kF32;
  return dtype == DType::kBF16 ? SafetensorsType::kBF16 : SafetensorsType::kF16;
}

Status refuse_type(const FolderTensor& tensor, DType dtype) {
  return unimplemented(fmt::format(
      "'{}': tensor '{}' is {}, and model.dtype = \"{}\": mapped weights travel as they are; set "
      "model.dtype (--dtype) to the type of the file, or model.base = \"memory\" (--base memory), "
      "which converts them once",
      tensor.file->path(), tensor.info->name, safetensors_type_name(tensor.info->type),
      dtype_name(dtype)));
}

Status refuse_packed(const FolderTensor& tensor) {
  return unimplemented(fmt::format(
      "'{}': tensor '{}' is packed as MXFP4, and mapped weights travel as they are; set model.base "
      "= \"memory\" (--base memory), which unpacks them once",
      tensor.file->path(), tensor.info->name));
}

}  // namespace

Result<std::shared_ptr<const MappedWeights>> MappedWeights::open(const std::string& folder,
                                                                 const Network& network,
                                                                 WeightProof proof) {
  STAGECOACH_ASSIGN_OR_RETURN(WeightFolder weights, WeightFolder::open(folder));
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<WeightPart> parts,
                              match_weights(weights, network, proof));
  std::shared_ptr<MappedWeights> mapped(new MappedWeights);
  std::map<const SafetensorsFile*, std::span<const std::byte>> files;
  ByteCount element_bytes = dtype_size_bytes(network.dtype);
  for (const WeightPart& part : parts) {
    if (!network.blocks[static_cast<size_t>(part.block)].is_mapped) continue;
    const FolderTensor& tensor = *part.tensor;
    if (part.scales != nullptr) return refuse_packed(tensor);
    if (tensor.info->type != type_of(network.dtype)) return refuse_type(tensor, network.dtype);
    auto [entry, is_new] = files.try_emplace(tensor.file);
    if (is_new) {
      STAGECOACH_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(tensor.file->path()));
      entry->second = file.bytes();
      mapped->files_.push_back(std::move(file));
    }
    ByteCount first = tensor.info->offset + part.first * element_bytes;
    ByteCount size = part.count * element_bytes;
    if (first + size > static_cast<ByteCount>(entry->second.size())) {
      return data_loss(fmt::format("'{}' was shortened while it was opened", tensor.file->path()));
    }
    mapped->parts_.push_back(
        {part.block, part.offset * element_bytes,
         entry->second.subspan(static_cast<size_t>(first), static_cast<size_t>(size))});
  }
  return std::shared_ptr<const MappedWeights>(std::move(mapped));
}

ByteCount MappedWeights::bytes() const {
  ByteCount bytes = 0;
  for (const MappedWeightPart& part : parts_) bytes += static_cast<ByteCount>(part.memory.size());
  return bytes;
}

Status MappedWeights::check_unchanged() const {
  for (const MappedFile& file : files_) STAGECOACH_RETURN_IF_ERROR(file.check_unchanged());
  return Status::ok();
}

void map_frozen_blocks(Network& network) {
  for (ParameterBlock& block : network.blocks) {
    block.is_mapped = block.is_frozen && !block.parameters.empty();
  }
}

}  // namespace stagecoach
