#include "tools/bandwidth/bandwidth_plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>
#include <regex>
#include <unistd.h>
#include <utility>

#include "scheduler/bulk_chunk.h"
#include "tools/bandwidth/compute_measurement.h"
#include "tools/bandwidth/contention.h"
#include "tools/bandwidth/host_measurement.h"
#include "tools/bandwidth/peer_measurement.h"
#include "tools/bandwidth/pin_measurement.h"
#include "tools/bandwidth/update_measurement.h"
#include "tools/bandwidth/urgent_measurement.h"

namespace stagecoach {

namespace {

using Memories = std::vector<std::shared_ptr<TransferMemory>>;

constexpr ByteCount kCardRing = kGiB;       ///< distinct pages: few would hide what TLBs cost
constexpr ByteCount kMockRing = 32 * kMiB;  ///< a mock's pages are not looked up by any card
constexpr ByteCount kLeastRing = 64 * kKiB;
constexpr LinkDirection kBothDirections[] = {LinkDirection::kUp, LinkDirection::kDown};

/// 0 where the system does not tell.
ByteCount last_level_cache_bytes() {
  long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes <= 0) bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return std::max<ByteCount>(0, bytes);
}

/// Builds the groups of a plan.
class PlanBuilder {
 public:
  PlanBuilder(std::span<const MeasuredDevice> devices, const BandwidthOptions& options,
              ByteCount free_bytes, TaskPool& pool)
      : devices_(devices), options_(options), free_bytes_(free_bytes), pool_(pool) {}

  void add(const std::string& group) {
    if (group == "host") return add_host();
    if (group == "optim") return add_updates();
    if (devices_.empty()) return;
    if (group == "copy") return add_copies();
    if (group == "duplex") return add_duplex();
    if (group == "together") return add_together();
    if (group == "contention") return add_contention();
    if (group == "urgent") return add_urgent();
    if (group == "compute") return add_compute();
    if (group == "pin") return add_pin();
    if (group == "p2p") add_peers();
  }

  BandwidthPlan take() { return std::move(plan_); }

 private:
  bool is_full() const { return options_.suite != "quick"; }

  /// Each direction of each device moves a ring on either side.
  ByteCount ring_bytes(const Device& device) const {
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
    return std::max(kLeastRing, ring / kLeastRing * kLeastRing);
  }

  Memories memories(MemoryKind kind, BandwidthGroup& group) const {
    Memories all;
    for (const MeasuredDevice& one : devices_) {
      ByteCount ring = ring_bytes(*one.device);
      uint64_t seed = options_.sampling.seed + all.size();
      all.push_back(std::make_shared<TransferMemory>(*one.device, ring, kind, seed, pool_));
      group.pinned_bytes += 2 * ring;
    }
    return all;
  }

  TransferFlow flow(const Memories& all, size_t device, LinkDirection direction) const {
    return {all[device], direction, devices_[device].link_bytes_per_s};
  }

  BandwidthGroup start(const std::string& name) const {
    BandwidthGroup group;
    group.name = name;
    group.sampling = options_.sampling;
    return group;
  }

  void push(BandwidthGroup group) {
    constexpr double kWarmUpS = 0.15;
    double each_s = static_cast<double>(group.sampling.min_time_ns) / 1e9 + kWarmUpS;
    for (const std::unique_ptr<Measurement>& one : group.measurements) {
      group.ids.push_back(one->info().id);
    }
    if (!is_full()) group.sampling.most_reruns = std::min(group.sampling.most_reruns, 1);
    group.expected_s = each_s * static_cast<double>(group.ids.size());
    if (!group.ids.empty()) plan_.groups.push_back(std::move(group));
  }

  static Json params(const std::string& device, const char* direction, MemoryKind kind,
                     ByteCount size) {
    Json json = Json::object();
    json["device"] = device;
    json["dir"] = direction;
    json["kind"] = memory_kind_name(kind);
    json["engine"] = "copy";
    json["size"] = size;
    return json;
  }

  /// A quarter of the ring or less, so that chunks go round it.
  std::vector<ByteCount> copy_sizes(ByteCount ring) const {
    if (!options_.sizes.empty()) return options_.sizes;
    if (!is_full()) return {ring / 256, ring / 16, ring / 4};
    std::vector<ByteCount> sizes;
    for (ByteCount size = 4 * kKiB; size <= ring / 4; size *= 4) sizes.push_back(size);
    return sizes;
  }

  std::vector<MemoryKind> kinds() const {
    if (!options_.kinds.empty()) return options_.kinds;
    if (!is_full()) return {MemoryKind::kHostPinned};
    return {MemoryKind::kHostPinned, MemoryKind::kHostRegistered, MemoryKind::kHostPageable};
  }

  void add_copy(BandwidthGroup& group, const Memories& all, size_t device, LinkDirection direction,
                ByteCount size, int depth) const {
    const std::string& name = devices_[device].device->id();
    const char* dir = link_direction_name(direction);
    MemoryKind kind = all[device]->host_kind();
    MeasurementInfo info;
    info.id = fmt::format("copy/{}/{}/{}/{}", name, dir, memory_kind_name(kind), short_size(size));
    if (depth > 0) info.id += fmt::format("/depth{}", depth);
    info.group = "copy";
    info.params = params(name, dir, kind, size);
    info.params["depth"] = depth > 0 ? Json(depth) : Json();
    group.measurements.push_back(std::make_unique<TransferMeasurement>(
        std::move(info), std::vector<TransferFlow>{flow(all, device, direction)},
        TransferShape{size, depth}));
  }

  void add_copies() {
    for (MemoryKind kind : kinds()) {
      BandwidthGroup group = start("copy");
      Memories all = memories(kind, group);
      for (size_t device = 0; device < devices_.size(); ++device) {
        ByteCount ring = all[device]->ring_bytes();
        std::vector<ByteCount> sizes = copy_sizes(ring);
        // What other kinds cost shows at one size.
        if (kind != MemoryKind::kHostPinned && options_.sizes.empty()) sizes = {ring / 16};
        for (LinkDirection direction : kBothDirections) {
          for (ByteCount size : sizes) add_copy_depths(group, all, device, direction, size);
        }
      }
      push(std::move(group));
    }
  }

  void add_copy_depths(BandwidthGroup& group, const Memories& all, size_t device,
                       LinkDirection direction, ByteCount size) const {
    if (options_.depths.empty()) add_copy(group, all, device, direction, size, 0);
    for (int64_t depth : options_.depths) {
      add_copy(group, all, device, direction, size, static_cast<int>(depth));
    }
  }

  ByteCount common_chunk(const Memories& all) const {
    if (!options_.sizes.empty()) return options_.sizes.back();
    ByteCount chunk = all.front()->ring_bytes() / 16;
    for (const auto& memory : all) chunk = std::min(chunk, memory->ring_bytes() / 16);
    return chunk;
  }

  void add_duplex() {
    BandwidthGroup group = start("duplex");
    Memories all = memories(MemoryKind::kHostPinned, group);
    ByteCount size = common_chunk(all);
    for (size_t device = 0; device < devices_.size(); ++device) {
      const std::string& name = devices_[device].device->id();
      MeasurementInfo info;
      info.id = fmt::format("duplex/{}/pinned/{}", name, short_size(size));
      info.group = "duplex";
      info.params = params(name, "both", MemoryKind::kHostPinned, size);
      std::vector<TransferFlow> flows = {flow(all, device, LinkDirection::kUp),
                                         flow(all, device, LinkDirection::kDown)};
      group.measurements.push_back(std::make_unique<TransferMeasurement>(
          std::move(info), std::move(flows), TransferShape{size, 0}));
    }
    push(std::move(group));
  }

  void add_together() {
    if (devices_.size() < 2) return;
    BandwidthGroup group = start("together");
    Memories all = memories(MemoryKind::kHostPinned, group);
    ByteCount size = common_chunk(all);
    for (const char* dir : {"up", "down", "both"}) {
      std::vector<TransferFlow> flows;
      for (LinkDirection direction : kBothDirections) {
        bool is_wanted =
            std::string("both") == dir || link_direction_name(direction) == std::string(dir);
        for (size_t device = 0; is_wanted && device < devices_.size(); ++device) {
          flows.push_back(flow(all, device, direction));
        }
      }
      MeasurementInfo info;
      info.id = fmt::format("together/{}/pinned/{}", dir, short_size(size));
      info.group = "together";
      info.params = params("all", dir, MemoryKind::kHostPinned, size);
      group.measurements.push_back(std::make_unique<TransferMeasurement>(
          std::move(info), std::move(flows), TransferShape{size, 0}));
    }
    push(std::move(group));
  }

  void add_contention() {
    if (std::ssize(devices_) > kMostFittedDevices) {
      plan_.notes.push_back(
          fmt::format("contention is measured for at most {} devices; these are "
                      "{}: name fewer with --devices",
                      kMostFittedDevices, devices_.size()));
      return;
    }
    for (LinkDirection direction : kBothDirections) {
      BandwidthGroup group = start("contention");
      Memories all = memories(MemoryKind::kHostPinned, group);
      TransferShape shape{common_chunk(all), 0};
      group.ids = {fmt::format("contention/{}", link_direction_name(direction))};
      // Fewer repetitions of each: there are many sets.
      group.sampling.min_time_ns = std::min<int64_t>(group.sampling.min_time_ns, 100'000'000);
      group.run = [all = std::move(all), direction, shape](const RepetitionOptions& sampling,
                                                           BandwidthReport& report) {
        run_contention(all, direction, shape, sampling, report);
      };
      push(std::move(group));
    }
  }

  void add_urgent() {
    BandwidthGroup group = start("urgent");
    Memories all = memories(MemoryKind::kHostPinned, group);
    for (size_t device = 0; device < devices_.size(); ++device) {
      if (devices_[device].device->virtual_time() != nullptr) continue;
      for (LinkDirection direction : kBothDirections) {
        add_urgent_methods(group, all[device], direction);
      }
    }
    // Latencies differ from each other by nature, and many are needed.
    group.sampling.cv_limit = 1e9;
    group.sampling.batch_time_ns = std::max<int64_t>(group.sampling.batch_time_ns, 100'000'000);
    push(std::move(group));
  }

  void add_urgent_methods(BandwidthGroup& group, const std::shared_ptr<TransferMemory>& memory,
                          LinkDirection direction) const {
    const DeviceInfo& device = memory->device().info();
    double rate = direction == LinkDirection::kUp ? device.up_bytes_per_s : device.down_bytes_per_s;
    ByteCount usual = std::min(bulk_chunk_bytes(rate), memory->ring_bytes() / 8);
    struct Way {
      BulkMethod method;
      ByteCount chunk;
      int ahead;
    };
    std::vector<Way> ways = {{BulkMethod::kWhole, usual, 0}};
    for (ByteCount chunk : {usual / 2, usual, 2 * usual}) {
      ways.push_back({BulkMethod::kAlternating, chunk, device.bulk_chunks_ahead});
    }
    ways.push_back({BulkMethod::kSharedStream, usual, 0});
    ways.push_back({BulkMethod::kOneInFlight, usual, 0});
    for (const Way& way : ways) {
      std::string method = bulk_method_name(way.method);
      std::replace(method.begin(), method.end(), ' ', '_');
      const char* dir = link_direction_name(direction);
      MeasurementInfo info;
      info.id = fmt::format("urgent/{}/{}/{}/{}", device.id, dir, method, short_size(way.chunk));
      info.group = "urgent";
      info.params = params(device.id, dir, MemoryKind::kHostPinned, usual);
      info.params["method"] = method;
      info.params["chunk"] = way.chunk;
      info.params["ahead"] = way.ahead;
      UrgentShape shape{direction, way.method, way.chunk, way.ahead, usual};
      group.measurements.push_back(
          std::make_unique<UrgentMeasurement>(std::move(info), memory, shape));
    }
  }

  void add_compute() {
    BandwidthGroup group = start("compute");
    // Long enough to fill a card; a mock's pace is the same for any.
    constexpr int64_t kCardSide = 8192, kMockSide = 256;
    for (const MeasuredDevice& one : devices_) {
      const DeviceInfo& device = one.device->info();
      if (one.device->virtual_time() != nullptr) continue;
      int64_t side = device.is_real_hardware ? kCardSide : kMockSide;
      MeasurementInfo info;
      info.id = fmt::format("compute/{}/matmul/bf16/{}", device.id, side);
      info.group = "compute";
      info.params["device"] = device.id;
      info.params["op"] = "matmul";
      info.params["dtype"] = "bf16";
      info.params["side"] = side;
      group.measurements.push_back(
          std::make_unique<ComputeMeasurement>(std::move(info), *one.device, side));
    }
    push(std::move(group));
  }

  /// From one thread to all: every power of two in between in full runs.
  std::vector<int> thread_counts() const {
    int most = pool_.thread_count();
    std::vector<int> threads = {1, most};
    if (is_full()) {
      for (int count = 2; count < most; count *= 2) threads.insert(threads.end() - 1, count);
    }
    threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
    return threads;
  }

  /// Bytes of each of `arrays` that host threads go through: more than caches hold, at most a
  /// quarter of the free memory together. Mocks are for trying out, and need not wait for it.
  ByteCount host_bytes(int arrays) {
    constexpr ByteCount kUsual = 128 * kMiB, kOfMocks = 48 * kMiB;
    bool is_mock = !devices_.empty() && !devices_.front().device->info().is_real_hardware;
    ByteCount enough = is_mock ? kOfMocks : std::max(kUsual, 2 * last_level_cache_bytes());
    ByteCount most = (options_.max_host > 0 ? options_.max_host : free_bytes_ / 4) / arrays;
    ByteCount size = std::max(kMiB, std::min(enough, most) / kMiB * kMiB);
    if (!is_mock && size < 2 * last_level_cache_bytes()) {
      std::string note = fmt::format(
          "host memory is measured on {}, of which caches of {} hold a part: its figures may be "
          "too high",
          format_bytes(size), format_bytes(last_level_cache_bytes()));
      if (std::find(plan_.notes.begin(), plan_.notes.end(), note) == plan_.notes.end()) {
        plan_.notes.push_back(std::move(note));
      }
    }
    return size;
  }

  void add_updates() {
    BandwidthGroup group = start("optim");
    int64_t count = host_bytes(1) / kBytesOfAnUpdate;
    auto arrays = std::make_shared<UpdateArrays>(count);
    for (int threads : thread_counts()) {
      MeasurementInfo info;
      info.id = fmt::format("optim/adamw/threads{}", threads);
      info.group = "optim";
      info.params["rule"] = "adamw";
      info.params["threads"] = threads;
      info.params["parameters"] = count;
      group.measurements.push_back(
          std::make_unique<UpdateMeasurement>(std::move(info), threads, arrays));
    }
    push(std::move(group));
  }

  void add_pin() {
    BandwidthGroup group = start("pin");
    for (const MeasuredDevice& one : devices_) {
      Device& device = *one.device;
      if (device.virtual_time() != nullptr) continue;
      ByteCount size = ring_bytes(device);
      for (MemoryKind kind : {MemoryKind::kHostPinned, MemoryKind::kHostRegistered}) {
        MeasurementInfo info;
        info.id =
            fmt::format("pin/{}/{}/{}", device.id(), memory_kind_name(kind), short_size(size));
        info.group = "pin";
        info.params = params(device.id(), "none", kind, size);
        group.measurements.push_back(
            std::make_unique<PinMeasurement>(std::move(info), device, kind, size));
        group.pinned_bytes = std::max(group.pinned_bytes, size);
      }
    }
    group.sampling.min_time_ns = 0;
    group.sampling.warm_up_limit_ns =
        std::min<int64_t>(group.sampling.warm_up_limit_ns, 300'000'000);
    group.sampling.most_reruns = 0;
    push(std::move(group));
  }

  void add_peers() {
    BandwidthGroup group = start("p2p");
    for (const MeasuredDevice& from : devices_) {
      for (const MeasuredDevice& to : devices_) {
        bool is_pair =
            from.device != to.device && from.device->info().backend == to.device->info().backend;
        if (is_pair) add_peer(group, *from.device, *to.device);
      }
    }
    if (group.measurements.empty()) {
      plan_.notes.push_back("copies between devices need two devices of one backend");
    }
    push(std::move(group));
  }

  void add_peer(BandwidthGroup& group, Device& source, Device& target) {
    ByteCount chunk = options_.sizes.empty() ? std::min(ring_bytes(source), ring_bytes(target)) / 16
                                             : options_.sizes.back();
    for (PeerRoute route : {PeerRoute::kDirect, PeerRoute::kStaged}) {
      MeasurementInfo info;
      info.id = fmt::format("p2p/{}/{}/{}/{}", source.id(), target.id(), peer_route_name(route),
                            short_size(chunk));
      info.group = "p2p";
      info.params["device"] = source.id();
      info.params["peer"] = target.id();
      info.params["route"] = peer_route_name(route);
      info.params["size"] = chunk;
      group.measurements.push_back(std::make_unique<PeerMeasurement>(
          std::move(info), source, target, route, chunk, options_.sampling.seed, pool_));
      group.pinned_bytes += 12 * chunk;
    }
    // Silent corruption is what is looked for.
    if (group.sampling.verify == VerifyMode::kEnd) group.sampling.verify = VerifyMode::kEach;
  }

  void add_host() {
    BandwidthGroup group = start("host");
    ByteCount size = host_bytes(2);
    auto arrays = std::make_shared<HostArrays>(size);
    std::vector<int> threads = thread_counts();
    for (HostKernel kernel : {HostKernel::kRead, HostKernel::kWrite, HostKernel::kCopy}) {
      for (int count : threads) {
        MeasurementInfo info;
        info.id = fmt::format("host/{}/threads{}", host_kernel_name(kernel), count);
        info.group = "host";
        info.params["kernel"] = host_kernel_name(kernel);
        info.params["threads"] = count;
        info.params["size"] = size;
        group.measurements.push_back(
            std::make_unique<HostMeasurement>(std::move(info), kernel, count, arrays));
      }
    }
    push(std::move(group));
  }

  const std::span<const MeasuredDevice> devices_;
  const BandwidthOptions& options_;
  const ByteCount free_bytes_;
  TaskPool& pool_;
  BandwidthPlan plan_;
};

Status apply_filter(const std::string& filter, BandwidthPlan& plan) {
  std::regex pattern;
  try {
    pattern = std::regex(filter, std::regex::ECMAScript);
  } catch (const std::regex_error& error) {
    return invalid_argument(fmt::format("--filter is '{}'; it must be a regular expression ({})",
                                        filter, error.what()));
  }
  auto is_left_out = [&](const std::string& id) { return !std::regex_search(id, pattern); };
  for (BandwidthGroup& group : plan.groups) {
    std::erase_if(group.ids, is_left_out);
    std::erase_if(group.measurements, [&](const std::unique_ptr<Measurement>& one) {
      return is_left_out(one->info().id);
    });
  }
  std::erase_if(plan.groups, [](const BandwidthGroup& group) { return group.ids.empty(); });
  if (!plan.groups.empty()) return Status::ok();
  return invalid_argument(
      fmt::format("--filter is '{}'; no measurement has such an id: see them with --list", filter));
}

}  // namespace

Result<BandwidthPlan> plan_bandwidth(std::span<const MeasuredDevice> devices,
                                     const BandwidthOptions& options, ByteCount free_bytes,
                                     TaskPool& pool) {
  STAGECOACH_ASSIGN_OR_RETURN(const BandwidthSuite* suite, find_bandwidth_suite(options.suite));
  PlanBuilder builder(devices, options, free_bytes, pool);
  const std::vector<std::string>& groups = suite->groups;
  if (!options.group.empty() &&
      std::find(groups.begin(), groups.end(), options.group) == groups.end()) {
    return invalid_argument(fmt::format("--group is '{}'; '{}' has {}", options.group,
                                        options.suite, fmt::join(groups, ", ")));
  }
  for (const std::string& group : groups) {
    if (options.group.empty() || group == options.group) builder.add(group);
  }
  BandwidthPlan plan = builder.take();
  if (!options.filter.empty()) STAGECOACH_RETURN_IF_ERROR(apply_filter(options.filter, plan));
  return plan;
}

void run_bandwidth_plan(BandwidthPlan plan, BandwidthReport& report,
                        const std::function<void(const BandwidthGroup&)>& before_group,
                        const std::function<void()>& after_group) {
  for (const std::string& note : plan.notes) report.notes.push_back(note);
  for (BandwidthGroup& planned : plan.groups) {
    BandwidthGroup group = std::move(planned);
    if (before_group) before_group(group);
    if (group.run) {
      group.run(group.sampling, report);
    } else {
      std::vector<MeasurementRecord> records = run_group(group.measurements, group.sampling);
      std::move(records.begin(), records.end(), std::back_inserter(report.records));
    }
    if (after_group) after_group();
  }
}

}  // namespace stagecoach
