#include "scheduler/plan_text.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "scheduler/weight_versions.h"

namespace stagecoach {

namespace {

/// Writes the entries of one device.
class EntryWriter {
 public:
  EntryWriter(const Plan& plan, OrderNotation notation, int device, const std::vector<int>& numbers,
              const WeightVersions& versions)
      : plan_(plan), notation_(notation), numbers_(numbers), versions_(versions) {
    std::set<int> held;
    for (const Action& action : plan.device_actions[device]) held.insert(numbers[action.stage]);
    held_.assign(held.begin(), held.end());
    first_backward_ = static_cast<int>(
        std::count_if(plan.stages.begin(), plan.stages.end(),
                      [](const Stage& stage) { return stage.kind == ActionKind::kForward; }));
  }

  std::string write(const Action& action) const {
    std::string_view kind = action_kind_name(plan_.stage_of(action).kind);
    int number = numbers_[action.stage];
    int m = action.micro_batch;
    switch (notation_) {
      case OrderNotation::kChunks: {
        if (held_.size() < 2) return fmt::format("{}{}", kind, m);
        auto chunk = std::find(held_.begin(), held_.end(), number) - held_.begin();
        return fmt::format("{}{}{}", kind, m, static_cast<char>('a' + chunk));
      }
      case OrderNotation::kDirections: {
        int half = plan_.window_size() / 2;
        int in_window = m % plan_.window_size();
        int base = plan_.window_of(m) * half;
        return in_window < half ? fmt::format("{}{}", kind, base + in_window)
                                : fmt::format("{}{}'", kind, base + in_window - half);
      }
      case OrderNotation::kVersions: {
        bool forward = runs_forward(plan_.stage_of(action).kind);
        int version = (forward ? versions_.forward : versions_.backward)[number][m];
        return fmt::format("{}{}@{}", kind, m, version);
      }
      case OrderNotation::kSlots: {
        bool forward = plan_.stage_of(action).kind == ActionKind::kForward;
        return fmt::format("{}{}:{}", forward ? "F" : "B",
                           forward ? action.stage : action.stage - first_backward_, m);
      }
    }
    return {};
  }

 private:
  const Plan& plan_;
  OrderNotation notation_;
  const std::vector<int>& numbers_;
  const WeightVersions& versions_;
  std::vector<int> held_;  ///< stage numbers on this device, rising
  int first_backward_ = 0;
};

}  // namespace

std::vector<std::vector<std::string>> order_text(const Plan& plan, const PlanTimeline& timeline,
                                                 OrderNotation notation) {
  std::vector<int> numbers = stage_numbers(plan);
  WeightVersions versions;
  if (notation == OrderNotation::kVersions) versions = weight_versions(plan, timeline);
  std::vector<std::vector<std::string>> text(plan.device_actions.size());
  for (int device = 0; device < plan.device_count(); ++device) {
    EntryWriter writer(plan, notation, device, numbers, versions);
    bool joins = false;
    for (int index : timeline.order[device]) {
      const Action& action = plan.device_actions[device][index];
      std::string entry = writer.write(action);
      if (joins) {
        text[device].back() += "+" + entry;
      } else {
        text[device].push_back(entry);
      }
      joins = action.with_next;
    }
  }
  return text;
}

}  // namespace stagecoach
