#include "tools/bandwidth/profile_sentinels.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <utility>

#include "tools/bandwidth/group_builder.h"
#include "tools/bandwidth/transfer_groups.h"
#include "tools/bandwidth/units.h"
#include "tools/bandwidth/update_measurement.h"

namespace stagecoach {

namespace {

/// Pinning takes longer than copying: less of it than for a profile will do.
constexpr ByteCount kSentinelRing = 256 * kMiB;

/// As much as a comparison within 10 % needs.
void hurry(RepetitionOptions& sampling) {
  sampling.repetitions = 5;
  sampling.min_time_ns = 100'000'000;
  sampling.batch_time_ns = 15'000'000;
  sampling.warm_up_limit_ns = 250'000'000;
  sampling.most_reruns = 1;
}

/// The largest chunks of which a ring holds four, since profiles are of the fastest.
ByteCount sentinel_chunk(const GroupBuilder& builder) {
  ByteCount chunk = kSentinelRing / 4;
  for (const MeasuredDevice& one : builder.devices()) {
    chunk = std::min(chunk, builder.ring_bytes(*one.device) / 4);
  }
  return chunk;
}

void add_update(int threads, GroupBuilder& builder) {
  BandwidthGroup group = builder.start("optim");
  auto arrays = std::make_shared<UpdateArrays>(builder.host_bytes(1) / kBytesOfAnUpdate);
  MeasurementInfo info;
  info.id = fmt::format("optim/adamw/threads{}", threads);
  info.group = "optim";
  info.params["threads"] = threads;
  group.measurements.push_back(
      std::make_unique<UpdateMeasurement>(std::move(info), threads, std::move(arrays)));
  builder.push(std::move(group));
}

/// What the profile says of the measurement with this info.
SentinelResult expectation(const MachineProfile& profile, const MeasurementInfo& info) {
  SentinelResult result;
  if (info.group == "optim") {
    result.entry = "host: work_bytes_per_s";
    result.before = profile.host_work_bytes_per_s / kBytesPerGb;
    return result;
  }
  result.device = info.params.find("device")->as_string();
  bool is_up = info.params.find("dir")->as_string() == "up";
  for (size_t index = 0; index < profile.cards.size(); ++index) {
    const MachineCard& card = profile.cards[index];
    if (card.device != result.device) continue;
    result.entry =
        fmt::format("cards[{}]: {}", index, is_up ? "up_bytes_per_s" : "down_bytes_per_s");
    result.before = (is_up ? card.up_bytes_per_s : card.down_bytes_per_s) / kBytesPerGb;
  }
  return result;
}

}  // namespace

Result<SentinelPlan> plan_sentinels(const MachineProfile& profile,
                                    std::span<const MeasuredDevice> devices,
                                    BandwidthOptions options, ByteCount free_bytes,
                                    TaskPool& pool) {
  options.suite = "quick";
  options.kinds.clear();
  options.depths.clear();
  hurry(options.sampling);
  bool has_card = std::any_of(devices.begin(), devices.end(), [](const MeasuredDevice& one) {
    return one.device->info().is_real_hardware;
  });
  options.working_set = has_card ? kSentinelRing : 0;
  options.sizes = {sentinel_chunk(GroupBuilder(devices, options, free_bytes, pool))};
  GroupBuilder builder(devices, options, free_bytes, pool);
  add_copies(builder);
  int threads = profile.host_work_threads > 0
                    ? std::min(profile.host_work_threads, pool.thread_count())
                    : pool.thread_count();
  add_update(threads, builder);
  SentinelPlan plan;
  plan.measurements = builder.take();
  STAGECOACH_RETURN_IF_ERROR(filter_plan(options.filter, plan.measurements));
  for (const BandwidthGroup& group : plan.measurements.groups) {
    for (const std::unique_ptr<Measurement>& one : group.measurements) {
      plan.expected.push_back(expectation(profile, one->info()));
    }
  }
  return plan;
}

std::vector<SentinelResult> run_sentinels(SentinelPlan plan) {
  constexpr size_t kRate = 0, kDram = 1;
  BandwidthReport report;
  run_bandwidth_plan(std::move(plan.measurements), report, nullptr, nullptr);
  std::vector<SentinelResult> results = std::move(plan.expected);
  for (size_t index = 0; index < results.size(); ++index) {
    const MeasurementRecord& record = report.records[index];
    results[index].status = record.status;
    results[index].reason = record.reason;
    results[index].flags = record.flags;
    results[index].now = record.median(record.info.group == "optim" ? kDram : kRate);
  }
  return results;
}

}  // namespace stagecoach
