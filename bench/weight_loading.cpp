// How fast do weights get from the page cache into the training state, and what does it take beside
// that state? README.md says how to read the figures.
// usage: weight_loading [GB] [bf16|fp16|fp32] [FOLDER]   (default 1 GB of bf16 in the temporary
// folder; what is written there is deleted)
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backends/register_backends.h"
#include "core/dtype.h"
#include "hal/hal.h"
#include "memory/host_limits.h"
#include "memory/host_state.h"
#include "model/weight_transfer.h"

namespace stagecoach {
namespace {

constexpr int64_t kColumns = 2048;
constexpr int64_t kLayerRows = 8192;
constexpr int kLoads = 4;

/// A model of square-ish matrices under names of Llama.
Network make_network(int64_t elements) {
  Network network;
  network.dtype = DType::kBF16;
  int64_t layers = std::max<int64_t>(1, elements / (kLayerRows * kColumns));
  for (int64_t layer = 0; layer < layers; ++layer) {
    ParameterBlock block;
    block.name = fmt::format("model.layers.{}.mlp.up_proj.weight", layer);
    block.add(block.name, {kLayerRows, kColumns}, true, {});
    network.blocks.push_back(std::move(block));
  }
  return network;
}

Status write_folder(const std::string& folder, const Network& network, SafetensorsType type) {
  std::vector<SafetensorsTensor> tensors;
  for (const ParameterBlock& block : network.blocks) {
    SafetensorsTensor tensor{block.name, type, {kLayerRows, kColumns}};
    tensor.read_f32 = [](int64_t first, std::span<float> out) {
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = static_cast<float>((first + static_cast<int64_t>(i)) % 4093) * 1e-4f;
      }
      return Status::ok();
    };
    tensors.push_back(std::move(tensor));
  }
  return write_weight_folder(folder, std::move(tensors), {ByteCount{400} * kMiB}).status();
}

/// Of all threads of this process.
double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double peak_gb() {
  Result<ByteCount> bytes = peak_host_bytes();
  return bytes.is_ok() ? static_cast<double>(*bytes) * 1e-9 : 0;
}

Result<std::unique_ptr<HostState>> make_state(Device& device, const Network& network) {
  std::vector<BlockLayout> layouts;
  for (const ParameterBlock& block : network.blocks) {
    layouts.push_back({block.name, block.element_count, 1, false, {}});
  }
  HostStateOptions options;
  options.compute_dtype = DType::kBF16;
  options.moments.count = 0;
  std::printf("state %.2f GB, ",
              static_cast<double>(host_state_bytes(layouts, options).total()) * 1e-9);
  return HostState::create(device, std::move(layouts), options);
}

Status measure(double gigabytes, SafetensorsType type, const std::string& folder) {
  ByteCount size = static_cast<ByteCount>(gigabytes * 1e9);
  Network network = make_network(size / safetensors_type_size(type));
  STAGECOACH_RETURN_IF_ERROR(write_folder(folder, network, type));
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Device>> devices,
                              built_in_backends().open_devices("cpu:1"));
  STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<HostState> state,
                              make_state(*devices.front(), network));
  std::printf("%.2f GB in memory before loading\n", peak_gb());
  for (int load = 0; load < kLoads; ++load) {
    auto sink = [&state](int block, int64_t offset, std::span<const float> values) {
      return state->write_parameters(block, offset, values);
    };
    double before = processor_seconds();
    STAGECOACH_ASSIGN_OR_RETURN(LoadedWeights loaded, load_weights(folder, network, sink));
    std::printf(
        "read %.2f GB in %.3f s and %.3f s of processor: %.2f GB/s; at most %.2f GB in memory\n",
        static_cast<double>(loaded.bytes) * 1e-9, loaded.seconds, processor_seconds() - before,
        static_cast<double>(loaded.bytes) / loaded.seconds * 1e-9, peak_gb());
  }
  return Status::ok();
}

int run(int count, char** arguments) {
  double gigabytes = count > 1 ? std::atof(arguments[1]) : 1.0;
  std::string dtype = count > 2 ? arguments[2] : "bf16";
  SafetensorsType type = SafetensorsType::kBF16;
  if (dtype == "fp16") type = SafetensorsType::kF16;
  if (dtype == "fp32") type = SafetensorsType::kF32;
  std::filesystem::path place =
      count > 3 ? std::filesystem::path(arguments[3]) : std::filesystem::temp_directory_path();
  std::string folder = (place / fmt::format("weight_loading-{}", ::getpid())).string();
  Status status = make_folders(folder);
  if (status.is_ok()) status = measure(gigabytes, type, folder);
  std::filesystem::remove_all(folder);
  if (status.is_ok()) return 0;
  std::fprintf(stderr, "weight_loading: %s\n", status.to_string().c_str());
  return 1;
}

}  // namespace
}  // namespace stagecoach

int main(int count, char** arguments) {
  return stagecoach::run(count, arguments);
}
