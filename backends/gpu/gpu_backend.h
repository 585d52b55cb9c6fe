#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu/gpu_card_name.h"
#include "backends/gpu/gpu_device.h"
#include "backends/gpu/gpu_error_map.h"
#include "backends/gpu/gpu_options.h"
#include "backends/gpu/gpu_sysfs.h"
#include "hal/backend.h"

namespace stagecoach {

/// The backend of one driver. The driver's library is opened when something is first asked, so a
/// program with this backend starts where there is none. Thread rule: as Backend.
template <typename Api>
class GpuBackend final : public Backend {
 public:
  /// `load` opens the driver; its failure says why there is none and what to do about it.
  /// `open_library` opens what computes some ops in place of the table's kernels; may be empty.
  GpuBackend(std::function<Result<Api>()> load, std::shared_ptr<GpuKernelTable> table,
             GpuLibraryOpener open_library = nullptr)
      : load_(std::move(load)), table_(std::move(table)), open_library_(std::move(open_library)) {}

  std::string_view name() const override { return Api::kBackendName; }

  std::vector<std::string> code_targets() const override { return table_->code().targets; }

  Status availability() override {
    if (!availability_.has_value()) availability_ = start();
    return *availability_;
  }

  std::vector<DeviceInfo> list_devices() override {
    std::vector<DeviceInfo> infos;
    for (int ordinal = 0; availability().is_ok() && ordinal < card_count_; ++ordinal) {
      GpuDeviceRequest request;
      request.ordinal = ordinal;
      request.index = ordinal;
      Result<Card> card = describe(request);
      if (card.is_ok()) infos.push_back(std::move(card.value().info));
    }
    return infos;
  }

  Status check(const DeviceSpec& spec) const override {
    // However many cards there are.
    STAGECOACH_ASSIGN_OR_RETURN(DeviceSpec first, name_first_card(spec));
    Status readable = parse_gpu_options(first, 1).status();
    return readable.code() == StatusCode::kInvalidArgument ? readable : Status::ok();
  }

  Result<std::vector<std::unique_ptr<Device>>> open(const DeviceSpec& spec) override {
    STAGECOACH_RETURN_IF_ERROR(availability());
    DeviceSpec numbered = spec;
    if (names_card(spec)) {
      STAGECOACH_ASSIGN_OR_RETURN(numbered, number_card(spec, list_devices()));
    }
    STAGECOACH_ASSIGN_OR_RETURN(std::vector<GpuDeviceRequest> requests,
                                parse_gpu_options(numbered, card_count_));
    std::vector<std::unique_ptr<Device>> devices;
    for (const GpuDeviceRequest& request : requests) {
      STAGECOACH_ASSIGN_OR_RETURN(Card card, describe(request));
      STAGECOACH_RETURN_IF_ERROR(check_memory(spec, request, card));
      STAGECOACH_ASSIGN_OR_RETURN(auto device,
                                  GpuDevice<Api>::open(runtime_, table_, open_library_, request,
                                                       std::move(card.info), card.arch));
      devices.push_back(std::move(device));
    }
    return devices;
  }

 private:
  struct Card {
    DeviceInfo info;
    GpuArch arch;
    ByteCount total_bytes = 0;
  };

  Status start() {
    STAGECOACH_ASSIGN_OR_RETURN(Api api, load_());
    auto runtime = std::make_shared<GpuRuntime<Api>>(std::move(api));
    const Api& driver = runtime->api();
    int error = driver.init();
    if (error == Api::kSuccess) error = driver.device_count(&card_count_);
    // Without a card CUDA's start answers "no device", and HIP's "invalid device".
    bool no_card = error == GpuErrorCode::kNoDevice || error == GpuErrorCode::kInvalidDevice ||
                   (error == Api::kSuccess && card_count_ == 0);
    if (no_card) {
      return unavailable(fmt::format("{}'s driver library is installed but finds no card; {}",
                                     Api::kBackendName,
                                     Api::start_advice(GpuErrorCode::kNoDevice)));
    }
    if (error != Api::kSuccess) {
      return unavailable(fmt::format("{}; {}", gpu_status(driver, error, "start driver").message(),
                                     Api::start_advice(error)));
    }
    STAGECOACH_RETURN_IF_ERROR(check_code(driver));
    runtime_ = std::move(runtime);
    return Status::ok();
  }

  Status check_code(const Api& driver) {
    const GpuCode& code = table_->code();
    if (code.image.empty()) {
      return unavailable(fmt::format("this build holds no {} kernels; configure with {}",
                                     Api::kBackendName, code.build_flag));
    }
    if (code.toolkit_version == 0) return Status::ok();
    int version = 0;
    int error = driver.driver_version(&version);
    if (error != Api::kSuccess) return gpu_status(driver, error, "driver version");
    if (!Api::driver_is_too_old(version, code.toolkit_version)) return Status::ok();
    return unavailable(fmt::format(
        "the driver supports {} {}.{}, but the kernels were built with {}.{}; update the driver or "
        "build with an older toolkit",
        Api::kBackendName, version / 1000, version % 1000 / 10, code.toolkit_version / 1000,
        code.toolkit_version % 1000 / 10));
  }

  Result<Card> describe(const GpuDeviceRequest& request) {
    const Api& api = runtime_->api();
    Card card;
    int device = 0;
    std::array<int, kGpuAttributeCount> values{};
    std::array<char, 256> text{};
    size_t total = 0;
    int error = api.device_get(request.ordinal, &device);
    for (int i = 0; error == Api::kSuccess && i < kGpuAttributeCount; ++i) {
      error = api.device_attribute(&values[i], static_cast<GpuAttribute>(i), device);
    }
    if (error == Api::kSuccess) error = api.device_name(text.data(), text.size(), device);
    card.info.name = text.data();
    text.fill(0);
    if (error == Api::kSuccess) error = api.device_pci_address(text.data(), text.size(), device);
    card.info.pci_address = text.data();
    if (error == Api::kSuccess) error = api.device_total_bytes(&total, device);
    if (error != Api::kSuccess) return gpu_status(api, error, "describe device");
    GpuUuid uuid{};
    error = api.device_uuid(uuid, device);
    // Not every driver has one to tell.
    bool has_none = error == GpuErrorCode::kInvalidValue || error == GpuErrorCode::kNotSupported;
    if (error == Api::kSuccess) card.info.uuid = gpu_uuid_text(uuid, card.info.name);
    if (error != Api::kSuccess && !has_none) return gpu_status(api, error, "describe device");
    auto value = [&](GpuAttribute attribute) { return values[static_cast<size_t>(attribute)]; };
    // HIP's functions may front an NVIDIA card, whose code then is NVIDIA's (docs/hip_backend.md).
    card.arch.is_amd = Api::kIsAmd && !card.info.name.starts_with("NVIDIA");
    card.arch.major = value(GpuAttribute::kComputeMajor);
    card.arch.minor = value(GpuAttribute::kComputeMinor);
    card.arch.multiprocessors = value(GpuAttribute::kMultiprocessors);
    card.arch.warp_size = value(GpuAttribute::kWarpSize);
    card.arch.shared_bytes = value(GpuAttribute::kSharedBytesPerBlock);
    card.info.copy_engines = std::max(1, value(GpuAttribute::kCopyEngines));
    card.total_bytes = static_cast<ByteCount>(total);
    complete(card, request);
    return card;
  }

  static void complete(Card& card, const GpuDeviceRequest& request) {
    DeviceInfo& info = card.info;
    info.backend = Api::kBackendName;
    info.id = fmt::format("{}:{}", Api::kBackendName, request.ordinal);
    if (request.part_count > 1) {
      info.id += fmt::format(".{}", request.part);
      info.name += fmt::format(" (part {} of {})", request.part + 1, request.part_count);
    }
    info.index = request.index;
    info.memory_bytes =
        request.memory_bytes > 0 ? request.memory_bytes : card.total_bytes / request.part_count;
    info.numa_node = pci_numa_node(info.pci_address);
    info.bulk_chunks_ahead = Api::kBulkChunksAhead;
    info.is_real_hardware = Api::kIsRealHardware;
    info.kernels_reach_pinned = true;  // its address on the host is that on the device
  }

  static Status check_memory(const DeviceSpec& spec, const GpuDeviceRequest& request,
                             const Card& card) {
    ByteCount most = card.total_bytes / request.part_count;
    if (card.info.memory_bytes <= most) return Status::ok();
    return invalid_argument(fmt::format(
        "device '{}': option 'memory' is {}, more than the {} that each of {} logical devices of "
        "this card can have",
        spec.text, format_bytes(card.info.memory_bytes), format_bytes(most), request.part_count));
  }

  const std::function<Result<Api>()> load_;
  const std::shared_ptr<GpuKernelTable> table_;
  const GpuLibraryOpener open_library_;
  std::optional<Status> availability_;
  std::shared_ptr<GpuRuntime<Api>> runtime_;
  int card_count_ = 0;
};

}  // namespace stagecoach
