#include "train/checkpoint_tensors.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/digest.h"
#include "model/peft_adapter.h"
#include "model/safetensors.h"
#include "model/weight_folder.h"

namespace stagecoach {

namespace {

std::vector<int64_t> dimensions(const Shape& shape) {
  return {shape.dims.begin(), shape.dims.begin() + shape.rank};
}

constexpr Moment kMoments[] = {Moment::kFirst, Moment::kSecond};

/// Calls `visit(block, parameter)`, which returns a Status, for all that is trained, in block
/// order; ends with the first failure.
template <typename Visit>
Status for_each_trained(const Trainer& trainer, Visit visit) {
  const Network& network = trainer.network();
  for (int block = 0; block < static_cast<int>(network.blocks.size()); ++block) {
    if (network.blocks[block].is_frozen) continue;
    for (const ParameterInfo& parameter : network.blocks[block].parameters) {
      STAGECOACH_RETURN_IF_ERROR(visit(block, parameter));
    }
  }
  return Status::ok();
}

/// The same for `visit(block, parameter, moment)` and what has moments.
template <typename Visit>
Status for_each_moment(const Trainer& trainer, Visit visit) {
  return for_each_trained(trainer, [&](int block, const ParameterInfo& parameter) -> Status {
    for (Moment moment : kept_moments(trainer.moments())) {
      STAGECOACH_RETURN_IF_ERROR(visit(block, parameter, moment));
    }
    return Status::ok();
  });
}

MomentView view_of(Trainer& trainer, int block, const ParameterInfo& parameter, Moment moment) {
  return trainer.moment(moment, block, parameter.offset, parameter.shape.element_count());
}

SafetensorsType type_of(MomentFormat format) {
  if (format == MomentFormat::kFloat32) return SafetensorsType::kF32;
  return format == MomentFormat::kBFloat16 ? SafetensorsType::kBF16 : SafetensorsType::kU8;
}

SafetensorsType type_of(DType dtype) {
  if (dtype == DType::kF32) return SafetensorsType::kF32;
  return dtype == DType::kBF16 ? SafetensorsType::kBF16 : SafetensorsType::kF16;
}

std::span<const std::byte> previous_of(const Trainer& trainer, int block,
                                       const ParameterInfo& parameter) {
  return trainer.previous_copy(block, parameter.offset, parameter.shape.element_count());
}

/// A tensor that must be of `type` and `shape`.
Result<const SafetensorInfo*> find_tensor(const SafetensorsFile& file, const std::string& name,
                                          SafetensorsType type, const std::vector<int64_t>& shape) {
  const SafetensorInfo* tensor = file.find(name);
  if (tensor == nullptr) {
    return data_loss(fmt::format("'{}': tensor '{}' is missing", file.path(), name));
  }
  if (tensor->type != type || tensor->shape != shape) {
    return data_loss(fmt::format("'{}': tensor '{}' is {} of shape {}, expected {} of shape {}",
                                 file.path(), name, safetensors_type_name(tensor->type),
                                 format_shape(tensor->shape), safetensors_type_name(type),
                                 format_shape(shape)));
  }
  return tensor;
}

/// Copies it, bit for bit.
Status load_tensor(const SafetensorsFile& file, const std::string& name, SafetensorsType type,
                   const std::vector<int64_t>& shape, std::span<std::byte> out) {
  STAGECOACH_ASSIGN_OR_RETURN(const SafetensorInfo* tensor, find_tensor(file, name, type, shape));
  return file.read(*tensor, 0, out);
}

}  // namespace

std::span<const Moment> kept_moments(const MomentOptions& moments) {
  return std::span(kMoments).first(static_cast<size_t>(moments.count));
}

std::string moment_name(const ParameterInfo& parameter, Moment moment) {
  return parameter.name + (moment == Moment::kFirst ? ".exp_avg" : ".exp_avg_sq");
}

std::string weight_name(const Network& network, const ParameterInfo& parameter) {
  return network.has_adapters() ? adapter_tensor_name(parameter.name) : parameter.name;
}

const char* weights_file(const Network& network) {
  return network.has_adapters() ? kAdapterWeightsFile : kWeightsFile;
}

std::vector<SafetensorsTensor> weight_tensors(const Trainer& trainer) {
  std::vector<SafetensorsTensor> tensors;
  const Network& network = trainer.network();
  Status status = for_each_trained(trainer, [&](int, const ParameterInfo& parameter) {
    tensors.push_back(
        {weight_name(network, parameter), SafetensorsType::kF32, dimensions(parameter.shape)});
    return Status::ok();
  });
  STAGECOACH_CHECK(status.is_ok());
  return tensors;
}

std::vector<SafetensorsTensor> moment_tensors(const Trainer& trainer) {
  std::vector<SafetensorsTensor> tensors;
  const MomentOptions& moments = trainer.moments();
  Status status = for_each_moment(trainer, [&](int, const ParameterInfo& parameter, Moment moment) {
    std::string name = moment_name(parameter, moment);
    tensors.push_back({name, type_of(moments.format), dimensions(parameter.shape)});
    if (moments.format != MomentFormat::kBlockwise8) return Status::ok();
    int64_t scales = moment_scale_count({}, parameter.shape.element_count());
    tensors.push_back({name + kScalesSuffix, SafetensorsType::kF32, {scales}});
    return Status::ok();
  });
  STAGECOACH_CHECK(status.is_ok());
  return tensors;
}

std::vector<SafetensorsTensor> previous_tensors(const Trainer& trainer) {
  std::vector<SafetensorsTensor> tensors;
  SafetensorsType type = type_of(trainer.network().dtype);
  Status status = for_each_trained(trainer, [&](int, const ParameterInfo& parameter) {
    tensors.push_back({parameter.name, type, dimensions(parameter.shape)});
    return Status::ok();
  });
  STAGECOACH_CHECK(status.is_ok());
  return tensors;
}

Result<std::string> moments_sha256(Trainer& trainer) {
  Sha256 digest;
  auto add = [&](int block, const ParameterInfo& parameter, Moment moment) {
    MomentView view = view_of(trainer, block, parameter, moment);
    digest.update(view.values.data(), static_cast<ByteCount>(view.values.size()));
    digest.update(view.scales.data(), static_cast<ByteCount>(view.scales.size_bytes()));
    return Status::ok();
  };
  STAGECOACH_RETURN_IF_ERROR(for_each_moment(trainer, add));
  return digest.hex();
}

Status load_moments(const std::string& folder, Trainer& trainer) {
  STAGECOACH_ASSIGN_OR_RETURN(SafetensorsFile file,
                              SafetensorsFile::open(folder + "/" + kMomentsFile));
  auto load = [&](int block, const ParameterInfo& parameter, Moment moment) -> Status {
    MomentView view = view_of(trainer, block, parameter, moment);
    std::string name = moment_name(parameter, moment);
    STAGECOACH_RETURN_IF_ERROR(load_tensor(file, name, type_of(trainer.moments().format),
                                           dimensions(parameter.shape), view.values));
    if (view.scales.empty()) return Status::ok();
    return load_tensor(file, name + kScalesSuffix, SafetensorsType::kF32,
                       {static_cast<int64_t>(view.scales.size())},
                       std::as_writable_bytes(view.scales));
  };
  return for_each_moment(trainer, load);
}

std::string previous_sha256(const Trainer& trainer) {
  Sha256 digest;
  Status status = for_each_trained(trainer, [&](int block, const ParameterInfo& parameter) {
    std::span<const std::byte> values = previous_of(trainer, block, parameter);
    digest.update(values.data(), static_cast<ByteCount>(values.size()));
    return Status::ok();
  });
  STAGECOACH_CHECK(status.is_ok());
  return digest.hex();
}

Status load_previous(const std::string& folder, Trainer& trainer) {
  STAGECOACH_ASSIGN_OR_RETURN(SafetensorsFile file,
                              SafetensorsFile::open(folder + "/" + kPreviousFile));
  return for_each_trained(trainer, [&](int block, const ParameterInfo& parameter) -> Status {
    STAGECOACH_ASSIGN_OR_RETURN(const SafetensorInfo* tensor,
                                find_tensor(file, parameter.name, type_of(trainer.network().dtype),
                                            dimensions(parameter.shape)));
    std::vector<std::byte> bytes(static_cast<size_t>(tensor->size));
    STAGECOACH_RETURN_IF_ERROR(file.read(*tensor, 0, bytes));
    trainer.write_previous_copy(block, parameter.offset, bytes);
    return Status::ok();
  });
}

}  // namespace stagecoach
