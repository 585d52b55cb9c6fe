#include "scheduler/profiled_network.h"

#include <cmath>
#include <fmt/format.h>
#include <memory>
#include <utility>

#include "hal/timed_kernel.h"

namespace stagecoach {

namespace {

/// The kernel that only takes time, as each device loaded it.
class TimedKernels {
 public:
  static Result<std::shared_ptr<const TimedKernels>> load(std::span<Device* const> devices,
                                                          const std::string& network) {
    auto kernels = std::make_shared<TimedKernels>();
    for (Device* device : devices) {
      Result<std::unique_ptr<Executable>> loaded =
          device->load_executable({std::string(kTimedKernels), {}});
      if (!loaded.is_ok()) {
        return invalid_argument(fmt::format(
            "device {} computes, but network '{}' has times instead of arithmetic; it runs on "
            "simulated devices alone, such as sim:8xrtx4090",
            device->id(), network));
      }
      STAGECOACH_ASSIGN_OR_RETURN(Kernel * kernel, (*loaded)->find_kernel(kTimedKernel));
      kernels->entries_.push_back({device, std::move(loaded).value(), kernel});
    }
    return std::shared_ptr<const TimedKernels>(std::move(kernels));
  }

  Status enqueue(Stream& stream, const std::string& label, double time_ns) const {
    for (const Entry& entry : entries_) {
      if (entry.device != &stream.device()) continue;
      LaunchRequest request;
      request.kernel = entry.kernel;
      request.arguments[0] = KernelArgument::of(static_cast<int64_t>(std::llround(time_ns)));
      request.argument_count = 1;
      request.label = label;
      return stream.launch(request).status();
    }
    return invalid_argument(
        fmt::format("device {} is none that this network was made for", stream.device().id()));
  }

 private:
  struct Entry {
    Device* device = nullptr;
    std::unique_ptr<Executable> executable;
    Kernel* kernel = nullptr;
  };
  std::vector<Entry> entries_;
};

/// One row of `bytes`, a multiple of four as all padded sizes are.
BoundaryInfo row_of(ByteCount bytes) {
  return {DType::kF32, bytes / dtype_size_bytes(DType::kF32)};
}

class ProfiledLayer final : public Layer {
 public:
  ProfiledLayer(LayerProfile profile, ByteCount input_bytes, std::vector<BlockUse> uses,
                std::shared_ptr<const TimedKernels> kernels)
      : profile_(std::move(profile)),
        input_bytes_(input_bytes),
        uses_(std::move(uses)),
        kernels_(std::move(kernels)) {}

  const std::string& name() const override { return profile_.name; }
  std::span<const BlockUse> uses() const override { return uses_; }
  BoundaryInfo input() const override { return row_of(input_bytes_); }
  BoundaryInfo output() const override { return row_of(profile_.boundary_bytes); }
  bool needs(RowInput input) const override { return profile_.row_bytes[input] > 0; }
  ByteCount report_bytes(const MicroBatchShape&) const override { return profile_.report_bytes; }
  LayerMemory memory(const MicroBatchShape&) const override {
    LayerMemory memory;
    memory.saved_bytes = profile_.saved_bytes;
    memory.forward_workspace_bytes = profile_.forward_workspace_bytes;
    memory.backward_workspace_bytes = profile_.backward_workspace_bytes;
    memory.split_workspace_bytes = profile_.backward_workspace_bytes;
    return memory;
  }
  /// None: no rate gives these times.
  LayerFlop flop(const MicroBatchShape&) const override { return {}; }

  Status forward(const LayerRun& run) const override { return take(run, profile_.forward_ns); }
  Status forward_saving(const LayerRun& run) const override {
    double saved = run.output.is_none() ? profile_.early_stop_ns : 0;
    return take(run, profile_.forward_ns - saved);
  }
  Status backward(const LayerRun& run, BackwardPart part) const override {
    double share = part == BackwardPart::kBoth ? 1 : 0.5;
    return take(run, share * profile_.backward_ns);
  }

 private:
  Status take(const LayerRun& run, double time_ns) const {
    return kernels_->enqueue(*run.stream, profile_.name, time_ns);
  }

  LayerProfile profile_;
  ByteCount input_bytes_;
  std::vector<BlockUse> uses_;
  std::shared_ptr<const TimedKernels> kernels_;
};

/// Adds layers, and the blocks that their copies are.
class Builder {
 public:
  Builder(std::string name, const std::vector<LayerProfile>& profiles, DType dtype,
          std::shared_ptr<const TimedKernels> kernels)
      : profiles_(profiles), kernels_(std::move(kernels)) {
    network_.name = std::move(name);
    network_.dtype = dtype;
  }

  Result<Network> build() {
    ByteCount input_bytes = profiles_.empty() ? 0 : profiles_.front().input_bytes;
    for (size_t index = 0; index < profiles_.size(); ++index) {
      const LayerProfile& profile = profiles_[index];
      if (profile.recompute_ns != profile.forward_ns) {
        return invalid_argument(fmt::format(
            "layer '{}' recomputes in {} ns but goes forward in {} ns; its layers run one or the "
            "other without knowing which",
            profile.name, profile.recompute_ns, profile.forward_ns));
      }
      if (input_bytes <= 0 || profile.boundary_bytes <= 0) {
        return invalid_argument(
            fmt::format("layer '{}' takes {} bytes and yields {}; both must be more than 0",
                        profile.name, input_bytes, profile.boundary_bytes));
      }
      STAGECOACH_ASSIGN_OR_RETURN(std::vector<BlockUse> uses, add_blocks(profile));
      uses_.push_back(uses);
      network_.layers.push_back(
          std::make_unique<ProfiledLayer>(profile, input_bytes, std::move(uses), kernels_));
      if (ByteCount bytes = profile.row_bytes[RowInput::kLabels]; bytes > 0) {
        network_.label = row_of(bytes);
      }
      for (RowInput rows : {RowInput::kDocumentStarts, RowInput::kPositions}) {
        if (profile.row_bytes[rows] > 0) network_.document = row_of(profile.row_bytes[rows]);
      }
      input_bytes = profile.boundary_bytes;
    }
    STAGECOACH_RETURN_IF_ERROR(network_.validate());
    return std::move(network_);
  }

 private:
  Result<std::vector<BlockUse>> add_blocks(const LayerProfile& profile) {
    std::vector<double> shares = profile.copy_shares;
    if (shares.empty() && profile.parameter_bytes > 0) shares = {1};
    std::vector<BlockUse> uses;
    ByteCount trained = 0;
    for (size_t copy = 0; copy < shares.size(); ++copy) {
      bool is_frozen = static_cast<int>(copy) < profile.frozen_copies;
      int64_t elements = std::llround(shares[copy] * static_cast<double>(profile.parameter_bytes)) /
                         dtype_size_bytes(network_.dtype);
      int shared = copy < profile.shared_layers.size() ? profile.shared_layers[copy] : -1;
      STAGECOACH_ASSIGN_OR_RETURN(BlockUse use, shared < 0 ? add_block(profile, copy, elements)
                                                           : find_block(profile, shared, elements));
      ParameterBlock& block = network_.blocks[use.block];
      block.is_frozen = is_frozen;
      use.site = block.site_count++;
      if (!is_frozen) trained += network_.block_bytes(use.block, network_.dtype);
      uses.push_back(use);
    }
    // Shares are of padded sizes, each padded by less than this.
    constexpr ByteCount kRoundingBytes = 256;
    ByteCount slack = kRoundingBytes * static_cast<ByteCount>(shares.size());
    if (std::abs(trained - profile.gradient_bytes) <= slack) return uses;
    return invalid_argument(fmt::format(
        "layer '{}' sends {} bytes of gradients home, but its trained copies have {} bytes",
        profile.name, profile.gradient_bytes, trained));
  }

  Result<BlockUse> add_block(const LayerProfile& profile, size_t copy, int64_t elements) {
    ParameterBlock block;
    block.name = fmt::format("{}.{}", profile.name, copy);
    block.element_count = elements;
    network_.blocks.push_back(std::move(block));
    return BlockUse{static_cast<int>(network_.blocks.size()) - 1, 0};
  }

  /// The block of `elements` that layer `shared` uses.
  Result<BlockUse> find_block(const LayerProfile& profile, int shared, int64_t elements) const {
    for (const BlockUse& use : uses_[static_cast<size_t>(shared)]) {
      if (network_.blocks[use.block].element_count == elements) return BlockUse{use.block, 0};
    }
    return invalid_argument(
        fmt::format("layer '{}' shares {} elements with layer {}, which has no "
                    "such copy",
                    profile.name, elements, shared));
  }

  const std::vector<LayerProfile>& profiles_;
  std::shared_ptr<const TimedKernels> kernels_;
  Network network_;
  std::vector<std::vector<BlockUse>> uses_;  ///< per layer
};

}  // namespace

Result<Network> make_profiled_network(std::string name, const std::vector<LayerProfile>& profiles,
                                      DType dtype, std::span<Device* const> devices) {
  STAGECOACH_ASSIGN_OR_RETURN(std::shared_ptr<const TimedKernels> kernels,
                              TimedKernels::load(devices, name));
  return Builder(std::move(name), profiles, dtype, std::move(kernels)).build();
}

}  // namespace stagecoach
