#include "tools/bandwidth/contention.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <numeric>

namespace stagecoach {

namespace {

/// Measures sets of devices and keeps a record of each.
class SetMeasurer {
 public:
  SetMeasurer(std::span<const std::shared_ptr<TransferMemory>> memories, LinkDirection direction,
              const TransferShape& shape, const RepetitionOptions& sampling,
              std::vector<MeasurementRecord>& records)
      : memories_(memories),
        direction_(direction),
        shape_(shape),
        sampling_(sampling),
        records_(records) {}

  /// Empty: the devices were not seen to be active together at their own pace, also when the set
  /// was measured again; `doubtful` has what came of it.
  Result<std::vector<double>> measure(DeviceSet active) {
    constexpr int kTurns = 3;
    MeasurementRecord record;
    bool is_clear = false;
    for (int turn = 0; turn < kTurns && !is_clear; ++turn) {
      MeasurementGroup group;
      group.push_back(make_contention_measurement(memories_, active, direction_, shape_));
      record = run_group(group, sampling_).front();
      is_clear =
          !record.is_ok() || record.has_flag(SampleFlag::kInterrupted) ||
          !(record.has_flag(SampleFlag::kShortWindow) || record.has_flag(SampleFlag::kOverrun));
    }
    bool is_one = record.info.quantities.size() == 1;
    std::vector<double> rates(memories_.size(), 0);
    size_t quantity = is_one ? 0 : 1;
    for (size_t device = 0; device < memories_.size(); ++device) {
      if ((active >> device & 1) != 0) rates[device] = record.median(quantity++);
    }
    bool is_ok = record.is_ok();
    records_.push_back(std::move(record));
    if (!is_ok) return cancelled(records_.back().reason);
    if (is_clear) return rates;
    doubtful_[active] = rates;
    bool is_alone =
        rates.size() - static_cast<size_t>(std::count(rates.begin(), rates.end(), 0.0)) < 2;
    if (!is_alone) rates.clear();
    return rates;
  }

  /// Sets that are no evidence, and what each of their devices had.
  const std::map<DeviceSet, std::vector<double>>& doubtful() const { return doubtful_; }

 private:
  std::span<const std::shared_ptr<TransferMemory>> memories_;
  LinkDirection direction_;
  const TransferShape& shape_;
  const RepetitionOptions& sampling_;
  std::vector<MeasurementRecord>& records_;
  std::map<DeviceSet, std::vector<double>> doubtful_;
};

/// What the first k devices of `order` reach, for every k; measures what is still missing.
Result<std::vector<CurvePoint>> measure_curve(const std::vector<int>& order, SetMeasurer& measurer,
                                              CapacityModel& model) {
  std::vector<CurvePoint> curve;
  DeviceSet set = 0;
  for (int device : order) {
    set |= DeviceSet{1} << device;
    bool is_known = model.measured.contains(set) || measurer.doubtful().contains(set);
    if (!is_known) {
      STAGECOACH_ASSIGN_OR_RETURN(std::vector<double> found, measurer.measure(set));
      if (!found.empty()) model.measured[set] = std::move(found);
    }
    auto measured = model.measured.find(set);
    const std::vector<double>& rates =
        measured != model.measured.end() ? measured->second : measurer.doubtful().at(set);
    curve.push_back({set, std::accumulate(rates.begin(), rates.end(), 0.0)});
  }
  return curve;
}

/// The pools that hold `device`, largest first: its way to the host, read from the host.
std::vector<size_t> path_of(const CapacityModel& model, size_t device) {
  std::vector<size_t> path;
  for (size_t pool = model.pools.size(); pool-- > 0;) {
    if ((model.pools[pool].members >> device & 1) != 0) path.push_back(pool);
  }
  return path;
}

}  // namespace

std::unique_ptr<Measurement> make_contention_measurement(
    std::span<const std::shared_ptr<TransferMemory>> memories, DeviceSet active,
    LinkDirection direction, const TransferShape& shape) {
  std::vector<TransferFlow> flows;
  std::string names;
  MeasurementInfo info;
  info.params["active_set"] = Json::array();
  for (size_t device = 0; device < memories.size(); ++device) {
    if ((active >> device & 1) == 0) continue;
    flows.push_back({memories[device], direction});
    const std::string& id = memories[device]->device().id();
    names += (names.empty() ? "" : "+") + id;
    info.params["active_set"].push_back(id);
  }
  info.id = fmt::format("contention/{}/{}", link_direction_name(direction), names);
  info.group = "contention";
  info.params["dir"] = link_direction_name(direction);
  info.params["kind"] = memory_kind_name(memories.front()->host_kind());
  info.params["engine"] = "copy";
  info.params["size"] = shape.chunk_bytes;
  return std::make_unique<TransferMeasurement>(std::move(info), std::move(flows), shape);
}

std::vector<int> packed_order(const CapacityModel& model) {
  std::vector<int> order;
  for (size_t device = 0; device < model.links.size(); ++device) {
    order.push_back(static_cast<int>(device));
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return path_of(model, static_cast<size_t>(a)) < path_of(model, static_cast<size_t>(b));
  });
  return order;
}

std::vector<int> spread_order(const CapacityModel& model) {
  std::vector<int> order, left = packed_order(model);
  std::vector<int> taken(model.pools.size(), 0);
  while (!left.empty()) {
    auto load = [&](int device) {
      std::vector<int> counts;
      for (size_t pool : path_of(model, static_cast<size_t>(device))) counts.push_back(taken[pool]);
      return counts;
    };
    auto best =
        std::min_element(left.begin(), left.end(), [&](int a, int b) { return load(a) < load(b); });
    for (size_t pool : path_of(model, static_cast<size_t>(*best))) ++taken[pool];
    order.push_back(*best);
    left.erase(best);
  }
  return order;
}

void run_contention(std::span<const std::shared_ptr<TransferMemory>> memories,
                    LinkDirection direction, const TransferShape& shape,
                    const RepetitionOptions& sampling, BandwidthReport& report) {
  SetMeasurer measurer(memories, direction, shape, sampling, report.records);
  auto measure = [&](DeviceSet active) { return measurer.measure(active); };
  ContentionFit fit;
  fit.direction = link_direction_name(direction);
  for (const auto& memory : memories) fit.devices.push_back(memory->device().id());
  Result<CapacityModel> model = fit_capacities(static_cast<int>(memories.size()), measure);
  if (!model.is_ok()) {
    report.notes.push_back(
        fmt::format("no capacities {}: {}", fit.direction, model.status().message()));
    return;
  }
  fit.model = std::move(*model);
  Result<std::vector<CurvePoint>> packed =
      measure_curve(packed_order(fit.model), measurer, fit.model);
  Result<std::vector<CurvePoint>> spread =
      measure_curve(spread_order(fit.model), measurer, fit.model);
  for (const auto* curve : {&packed, &spread}) {
    if (curve->is_ok()) continue;
    report.notes.push_back(
        fmt::format("a curve {} is missing: {}", fit.direction, curve->status().message()));
  }
  if (packed.is_ok()) fit.packed = std::move(*packed);
  if (spread.is_ok()) fit.spread = std::move(*spread);
  fit.sets_measured = std::ssize(fit.model.measured);
  if (!measurer.doubtful().empty()) {
    fit.model.is_complete = false;
    report.notes.push_back(fmt::format(
        "capacities {} are incomplete: {} sets were not seen active together at their own pace, "
        "measured three times, and no pool follows from them",
        fit.direction, measurer.doubtful().size()));
  }
  report.fits.push_back(std::move(fit));
}

}  // namespace stagecoach
