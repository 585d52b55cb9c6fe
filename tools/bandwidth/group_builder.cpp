#include "tools/bandwidth/group_builder.h"

#include <algorithm>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

namespace stagecoach {

namespace {

constexpr ByteCount kCardRing = kGiB;       ///< distinct pages: few would hide what TLBs cost
constexpr ByteCount kMockRing = 32 * kMiB;  ///< a mock's pages are not looked up by any card
constexpr ByteCount kLeastRing = 64 * kKiB;

/// 0 where the system does not tell.
ByteCount last_level_cache_bytes() {
  long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes <= 0) bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return std::max<ByteCount>(0, bytes);
}

/// Of an idle machine: finding the repeats of a batch, warm-up, repetitions, and again what stays
/// noisy where nothing settles.
double expected_time_s(const BandwidthGroup& group) {
  constexpr double kCalibration = 1.5, kWarmUp = 4;  // batches
  const RepetitionOptions& sampling = group.sampling;
  double batch_s = static_cast<double>(sampling.batch_time_ns) / 1e9;
  double warm_up_s =
      group.settles ? kWarmUp * batch_s : static_cast<double>(sampling.warm_up_limit_ns) / 1e9;
  double measured_s = std::max(static_cast<double>(sampling.min_time_ns) / 1e9,
                               static_cast<double>(sampling.repetitions) * batch_s);
  // Latencies, which are noisy by nature, have no limit.
  bool is_noisy = !group.settles && sampling.cv_limit < 1;
  if (is_noisy) measured_s *= 1 + sampling.most_reruns / 2.0;
  auto count = static_cast<double>(group.run_count > 0 ? group.run_count : std::ssize(group.ids));
  return count * (kCalibration * batch_s + warm_up_s + measured_s);
}

}  // namespace

ByteCount GroupBuilder::ring_bytes(const Device& device) const {
  const DeviceInfo& info = device.info();
  ByteCount ring = info.is_real_hardware ? kCardRing : kMockRing;
  // A tenth of a second of a slow mock's link is enough.
  if (!info.is_real_hardware && info.up_bytes_per_s > 0) {
    ring = std::min(ring, static_cast<ByteCount>(info.up_bytes_per_s / 10));
  }
  ByteCount pinned = options_.max_pinned > 0 ? options_.max_pinned : free_bytes_ / 4;
  ring = std::min(ring, pinned / (2 * std::ssize(devices_)));
  if (options_.working_set > 0) ring = options_.working_set;
  ring = std::min(ring, info.memory_bytes / 4);
  if (options_.most_host > 0)
    ring = std::min(ring, options_.most_host / (2 * std::ssize(devices_)));
  return std::max(kLeastRing, ring / kLeastRing * kLeastRing);
}

std::shared_ptr<TransferMemory> GroupBuilder::memory_of(size_t device, MemoryKind kind,
                                                        std::shared_ptr<NodePlacement> placement,
                                                        BandwidthGroup& group) const {
  ByteCount ring = ring_bytes(*devices_[device].device);
  // A simulated device takes nothing.
  if (devices_[device].device->virtual_time() == nullptr) group.pinned_bytes += 2 * ring;
  uint64_t seed = options_.sampling.seed + device;
  return std::make_shared<TransferMemory>(*devices_[device].device, ring, kind, seed, pool_,
                                          std::move(placement));
}

TransferMemories GroupBuilder::memories(MemoryKind kind, BandwidthGroup& group) const {
  TransferMemories all;
  for (size_t device = 0; device < devices_.size(); ++device) {
    std::shared_ptr<NodePlacement> placement;
    if (const NumaChoice* numa = options_.numa.get()) {
      placement = numa->placement(numa->copy_nodes(devices_[device].numa_node).front());
    }
    all.push_back(memory_of(device, kind, std::move(placement), group));
  }
  return all;
}

std::vector<int> GroupBuilder::copy_nodes() const {
  std::vector<int> nodes;
  if (options_.numa == nullptr) return nodes;
  for (const MeasuredDevice& one : devices_) {
    for (int node : options_.numa->copy_nodes(one.numa_node)) {
      if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
    }
  }
  return nodes;
}

TransferMemories GroupBuilder::memories_on(int node, MemoryKind kind, BandwidthGroup& group) const {
  TransferMemories all(devices_.size());
  for (size_t device = 0; device < devices_.size(); ++device) {
    std::vector<int> nodes = options_.numa->copy_nodes(devices_[device].numa_node);
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) continue;
    all[device] = memory_of(device, kind, options_.numa->placement(node), group);
  }
  return all;
}

TransferFlow GroupBuilder::flow(const TransferMemories& all, size_t device,
                                LinkDirection direction) const {
  return {all[device], direction, devices_[device].link_bytes_per_s};
}

ByteCount GroupBuilder::common_chunk(const TransferMemories& all) const {
  if (!options_.sizes.empty()) return options_.sizes.back();
  ByteCount chunk = all.front()->ring_bytes() / 16;
  for (const auto& memory : all) chunk = std::min(chunk, memory->ring_bytes() / 16);
  return chunk;
}

std::vector<int> GroupBuilder::thread_counts(int most) const {
  most = most > 0 ? std::min(most, pool_.thread_count()) : pool_.thread_count();
  std::vector<int> threads = {1, most};
  if (is_full()) {
    for (int count = 2; count < most; count *= 2) threads.insert(threads.end() - 1, count);
  }
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
  return threads;
}

ByteCount GroupBuilder::host_bytes(int arrays) {
  // On a server's 300 MB of last cache, updates of twice as much ran at more than twice what its
  // memory gives: caches do not drop what was used longest ago.
  constexpr int kCaches = 8;
  least_host_bytes_ = std::max(least_host_bytes_, arrays * kMiB);
  constexpr ByteCount kLeast = 256 * kMiB, kMost = 4 * kGiB, kOfMocks = 48 * kMiB;
  bool is_mock = !devices_.empty() && !devices_.front().device->info().is_real_hardware;
  ByteCount caches = last_level_cache_bytes();
  ByteCount enough = is_mock ? kOfMocks * arrays : std::clamp(kCaches * caches, kLeast, kMost);
  ByteCount most = options_.max_host > 0 ? options_.max_host : free_bytes_ / 4;
  if (options_.most_host > 0) most = std::min(most, options_.most_host);
  ByteCount all = std::min(enough, most);
  if (all < kCaches * caches) {
    note(fmt::format(
        "host memory is measured on {}, of which caches of {} hold a part: its figures may be too "
        "high",
        format_bytes(all), format_bytes(caches)));
  }
  return std::max(kMiB, all / arrays / kMiB * kMiB);
}

Status GroupBuilder::check_limits() const {
  if (options_.max_host > 0 && options_.max_host < least_host_bytes_) {
    return invalid_argument(fmt::format(
        "--max-mem is {}; threads of the host go through at least {}: give that or more",
        short_size(options_.max_host), short_size(least_host_bytes_)));
  }
  bool is_pinning = std::any_of(plan_.groups.begin(), plan_.groups.end(),
                                [](const BandwidthGroup& group) { return group.pinned_bytes > 0; });
  if (options_.max_pinned <= 0 || !is_pinning) return Status::ok();
  ByteCount least = 0;
  for (const MeasuredDevice& one : devices_) least += 2 * ring_bytes(*one.device);
  if (least <= options_.max_pinned) return Status::ok();
  return invalid_argument(
      fmt::format("--max-pinned is {}; {}, up and down, take at least {}: give that or more",
                  short_size(options_.max_pinned),
                  options_.working_set > 0
                      ? fmt::format("copies of {} devices with that --working-set", devices_.size())
                      : fmt::format("copies of {} devices", devices_.size()),
                  short_size(least)));
}

BandwidthGroup GroupBuilder::start(const std::string& name) const {
  BandwidthGroup group;
  group.name = name;
  group.sampling = options_.sampling;
  return group;
}

void GroupBuilder::push(BandwidthGroup group) {
  // Sizes that a small device cuts down may coincide: what has a result already is not measured.
  std::erase_if(group.measurements, [this](const std::unique_ptr<Measurement>& one) {
    return !ids_.insert(one->info().id).second;
  });
  for (const std::unique_ptr<Measurement>& one : group.measurements) {
    group.ids.push_back(one->info().id);
  }
  if (!is_full()) group.sampling.most_reruns = std::min(group.sampling.most_reruns, 1);
  group.expected_s = expected_time_s(group);
  if (!group.ids.empty()) plan_.groups.push_back(std::move(group));
}

void GroupBuilder::note(std::string text) {
  if (text.empty()) return;
  if (std::find(plan_.notes.begin(), plan_.notes.end(), text) != plan_.notes.end()) return;
  plan_.notes.push_back(std::move(text));
}

Json copy_params(const std::string& device, const char* direction, MemoryKind kind,
                 ByteCount size) {
  Json json = Json::object();
  json["device"] = device;
  json["dir"] = direction;
  json["kind"] = memory_kind_name(kind);
  json["engine"] = "copy";
  json["size"] = size;
  return json;
}

}  // namespace stagecoach
