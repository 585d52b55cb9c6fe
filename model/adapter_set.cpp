#include "model/adapter_set.h"

#include <algorithm>

#include "core/digest.h"
#include "model/peft_adapter.h"

namespace stagecoach {

namespace {

constexpr std::string_view kFirst = ".lora_A.weight", kSecond = ".lora_B.weight";

std::vector<float> transposed(const std::vector<float>& matrix, int64_t rows, int64_t columns) {
  std::vector<float> result(matrix.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      result[static_cast<size_t>(column * rows + row)] =
          matrix[static_cast<size_t>(row * columns + column)];
    }
  }
  return result;
}

}  // namespace

Result<AdapterSet> AdapterSet::load(const std::string& folder, const Network& network,
                                    const LoraOptions& lora, bool is_transposed) {
  AdapterSet set;
  set.rank_ = lora.rank;
  set.scale_ = static_cast<float>(lora.scale());
  std::map<std::pair<int, int64_t>, size_t> places;  // by block and offset
  for (size_t block = 0; block < network.blocks.size(); ++block) {
    if (!network.blocks[block].is_adapter) continue;
    for (const ParameterInfo& parameter : network.blocks[block].parameters) {
      places[{static_cast<int>(block), parameter.offset}] = set.tensors_.size();
      set.tensors_.push_back(
          {parameter.name,
           {parameter.shape.dims[0], parameter.shape.dims[1]},
           std::vector<float>(static_cast<size_t>(parameter.shape.element_count()))});
    }
  }
  auto take = [&](int block, int64_t offset, std::span<const float> values) {
    auto place = std::prev(places.upper_bound({block, offset}));
    std::copy(values.begin(), values.end(),
              set.tensors_[place->second].values.begin() + (offset - place->first.second));
    return Status::ok();
  };
  STAGECOACH_RETURN_IF_ERROR(load_adapters(folder, network, take));
  std::map<std::string_view, const Tensor*> by_name;
  for (const Tensor& tensor : set.tensors_) by_name[tensor.name] = &tensor;
  for (const Tensor& tensor : set.tensors_) {
    if (!tensor.name.ends_with(kFirst)) continue;
    std::string module = tensor.name.substr(0, tensor.name.size() - kFirst.size());
    set.add_product(tensor, *by_name.at(module + std::string(kSecond)), is_transposed);
  }
  return set;
}

void AdapterSet::add_product(const Tensor& first, const Tensor& second, bool is_transposed) {
  std::string module = first.name.substr(0, first.name.size() - kFirst.size());
  Product& product = products_[module + ".weight"];
  int64_t in = first.shape[1], out = second.shape[0];
  product.columns = is_transposed ? out : in;
  product.left = is_transposed ? transposed(first.values, rank_, in) : second.values;
  product.right = is_transposed ? transposed(second.values, out, rank_) : first.values;
}

std::string AdapterSet::sha256() const {
  Sha256 digest;
  for (const Tensor& tensor : tensors_) {
    digest.update(tensor.values.data(),
                  static_cast<ByteCount>(tensor.values.size() * sizeof(float)));
  }
  return digest.hex();
}

std::vector<SafetensorsTensor> AdapterSet::tensors(SafetensorsType type) const {
  std::vector<SafetensorsTensor> list;
  for (const Tensor& tensor : tensors_) {
    SafetensorsTensor out{adapter_tensor_name(tensor.name), type, tensor.shape};
    out.read_f32 = [&tensor](int64_t first, std::span<float> piece) {
      std::copy_n(tensor.values.begin() + first, piece.size(), piece.begin());
      return Status::ok();
    };
    list.push_back(std::move(out));
  }
  return list;
}

std::vector<std::string> AdapterSet::adapted() const {
  std::vector<std::string> names;
  for (const auto& [name, product] : products_) names.push_back(name);
  return names;
}

void AdapterSet::add_to(const std::string& name, int64_t first, std::span<float> values) const {
  const Product& product = products_.at(name);
  std::vector<float> sums;
  for (size_t done = 0; done < values.size();) {
    int64_t row = (first + static_cast<int64_t>(done)) / product.columns;
    int64_t column = (first + static_cast<int64_t>(done)) % product.columns;
    auto count = std::min(values.size() - done, static_cast<size_t>(product.columns - column));
    sums.assign(count, 0.0f);
    for (int64_t k = 0; k < rank_; ++k) {
      float factor = product.left[static_cast<size_t>(row * rank_ + k)];
      const float* right = product.right.data() + k * product.columns + column;
      for (size_t i = 0; i < count; ++i) sums[i] += factor * right[i];
    }
    for (size_t i = 0; i < count; ++i) values[done + i] += scale_ * sums[i];
    done += count;
  }
}

}  // namespace stagecoach
