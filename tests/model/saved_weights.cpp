#include "tests/model/saved_weights.h"

#include "core/file.h"
#include "model/safetensors.h"

namespace stagecoach {

Status save_weights(const std::string& folder, const Network& network,
                    const ParameterSource& source, WeightNaming naming) {
  std::vector<SafetensorsTensor> tensors;
  for (size_t b = 0; b < network.blocks.size(); ++b) {
    for (const ParameterInfo& parameter : network.blocks[b].parameters) {
      SafetensorsTensor tensor;
      tensor.name = file_name_of(parameter.name, naming);
      tensor.shape = {parameter.shape.dims.begin(),
                      parameter.shape.dims.begin() + parameter.shape.rank};
      tensor.read_f32 = [&source, block = static_cast<int>(b), offset = parameter.offset](
                            int64_t first, std::span<float> out) {
        source(block, offset + first, out);
        return Status::ok();
      };
      tensors.push_back(std::move(tensor));
    }
  }
  STAGECOACH_RETURN_IF_ERROR(make_folders(folder));
  return write_safetensors(folder + "/" + kWeightsFile, std::move(tensors));
}

}  // namespace stagecoach
