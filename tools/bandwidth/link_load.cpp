#include "tools/bandwidth/link_load.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "tools/bandwidth/transfer_measurement.h"

namespace stagecoach {

namespace {

constexpr ByteCount kLoadRing = 64 * kMiB, kLoadChunk = 8 * kMiB;
constexpr int64_t kLoadTimeNs = 400'000'000, kLoadLimitNs = 10'000'000'000;
constexpr int64_t kReadIntervalNs = 20'000'000;
constexpr int64_t kChunksAtATime = 64;

}  // namespace

Status read_links_under_load(Device& device, TaskPool& pool, PciPath& path,
                             const std::string& sysfs) {
  ByteCount ring = std::min(kLoadRing, device.info().memory_bytes / 4);
  auto memory = std::make_shared<TransferMemory>(device, ring, MemoryKind::kHostPinned, 1, pool);
  std::vector<TransferFlow> flows = {{memory, LinkDirection::kUp}, {memory, LinkDirection::kDown}};
  MeasurementInfo info;
  info.id = info.group = "link";
  TransferMeasurement load(std::move(info), std::move(flows), {std::min(kLoadChunk, ring), 0});
  STAGECOACH_RETURN_IF_ERROR(load.prepare());
  PciPath seen = path;
  std::jthread reader([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::optional<PciPath> now = read_pci_path(device.info().pci_address, sysfs);
      if (now.has_value()) seen.keep_fastest(*now);
      sleep_until_ns(RealClock::instance().now_ns() + kReadIntervalNs);
    }
  });
  int64_t start_ns = RealClock::instance().now_ns();
  Status status;
  while (status.is_ok() && RealClock::instance().now_ns() - start_ns < kLoadTimeNs) {
    status = load.run(kChunksAtATime, start_ns + kLoadLimitNs).status();
  }
  reader.request_stop();
  reader.join();
  path = seen;
  return status;
}

}  // namespace stagecoach
