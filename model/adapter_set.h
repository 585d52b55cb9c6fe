#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "model/lora_options.h"
#include "model/safetensors.h"
#include "scheduler/network.h"

namespace stagecoach {

/// The adapters of a folder, all of them in memory as fp32: what is exported and merged.
/// Thread rule: any thread once loaded.
class AdapterSet {
 public:
  /// Those of `network`, made with `lora`; `is_transposed` where the base's matrices are [in, out].
  /// Errors: those of `load_adapters`.
  static Result<AdapterSet> load(const std::string& folder, const Network& network,
                                 const LoraOptions& lora, bool is_transposed);

  /// sha256 of all numbers in the network's order, as `Trainer::weights_sha256`.
  std::string sha256() const;
  /// For a file as PEFT has it; they read this set.
  std::vector<SafetensorsTensor> tensors(SafetensorsType type) const;
  /// Weights of the base that are adapted: "model.layers.0.self_attn.q_proj.weight", ….
  std::vector<std::string> adapted() const;
  /// Adds scale * B A to elements of the weight `name` from `first` on, in fp32.
  void add_to(const std::string& name, int64_t first, std::span<float> values) const;

 private:
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  /// Of one weight [rows, columns]: the product of left [rows, rank] and right [rank, columns].
  struct Product {
    int64_t columns = 0;
    std::vector<float> left, right;
  };

  AdapterSet() = default;
  void add_product(const Tensor& first, const Tensor& second, bool is_transposed);

  int64_t rank_ = 0;
  float scale_ = 1;
  std::vector<Tensor> tensors_;
  std::map<std::string, Product> products_;
};

}  // namespace stagecoach
