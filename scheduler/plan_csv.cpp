#include "scheduler/plan_csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>
#include <map>
#include <set>
#include <vector>

#include "scheduler/plan_builder.h"

namespace stagecoach {

namespace {

constexpr std::string_view kOverlap = "OVERLAP_F_B";
constexpr std::array kAdmissions = {std::string_view("static"), std::string_view("gate")};
constexpr std::array kVersionRules = {std::string_view("flush"), std::string_view("current"),
                                      std::string_view("stash"), std::string_view("delayed")};
constexpr std::array kUpdateScopes = {std::string_view("layer"), std::string_view("model")};
constexpr std::array kResidences = {std::string_view("streamed"), std::string_view("bound")};
constexpr std::array kWrittenKinds = {ActionKind::kForward, ActionKind::kBackward,
                                      ActionKind::kForwardBackward, ActionKind::kInputGradient,
                                      ActionKind::kWeightGradient};
/// Larger numbers are typing errors; they would only exhaust memory.
constexpr int kMaxNumber = 1'000'000;

/// A piece of a text and where it begins, both from 1.
struct TextCell {
  std::string_view text;
  int line = 1;
  int column = 1;
};

Status refuse(std::string_view name, const TextCell& cell, std::string_view what) {
  return invalid_argument(fmt::format("{}: line {}, column {}: '{}' {}", name, cell.line,
                                      cell.column, cell.text, what));
}

TextCell trimmed(TextCell cell) {
  while (!cell.text.empty() && (cell.text.front() == ' ' || cell.text.front() == '\t')) {
    cell.text.remove_prefix(1);
    ++cell.column;
  }
  while (!cell.text.empty() &&
         (cell.text.back() == ' ' || cell.text.back() == '\t' || cell.text.back() == '\r')) {
    cell.text.remove_suffix(1);
  }
  return cell;
}

/// Cells of `row` between separators.
std::vector<TextCell> split(const TextCell& row, char separator) {
  std::vector<TextCell> cells;
  size_t begin = 0;
  while (true) {
    size_t end = std::min(row.text.find(separator, begin), row.text.size());
    cells.push_back(trimmed(TextCell{row.text.substr(begin, end - begin), row.line,
                                     row.column + static_cast<int>(begin)}));
    if (end == row.text.size()) return cells;
    begin = end + 1;
  }
}

/// Lines of a text, without a last empty one.
std::vector<TextCell> lines_of(std::string_view text) {
  std::vector<TextCell> lines;
  int number = 1;
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(TextCell{text.substr(0, end), number++, 1});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// The whole of `text` as a number from 0 to kMaxNumber.
std::optional<int> to_number(std::string_view text) {
  int value = 0;
  const char* end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end || text.front() == '-' ||
      value > kMaxNumber) {
    return std::nullopt;
  }
  return value;
}

/// An action before its stage is looked up.
struct RawAction {
  ActionKind kind = ActionKind::kForward;
  int number = 0;
  int micro_batch = 0;
  bool with_next = false;
  TextCell cell;
};

Result<RawAction> parse_action(std::string_view name, const TextCell& cell) {
  size_t kind_at = cell.text.find_first_not_of("0123456789");
  size_t kind_end = std::min(
      cell.text.find_first_of("0123456789", std::min(kind_at, cell.text.size())), cell.text.size());
  if (kind_at == std::string_view::npos || kind_at == 0) {
    return refuse(name, cell, "is no action; write stage, F, B, I or W, micro-batch, as 2F0");
  }
  std::string_view kind = cell.text.substr(kind_at, kind_end - kind_at);
  RawAction action;
  action.cell = cell;
  if (kind == "F") {
    action.kind = ActionKind::kForward;
  } else if (kind == "B") {
    action.kind = ActionKind::kBackward;
  } else if (kind == "I") {
    action.kind = ActionKind::kInputGradient;
  } else if (kind == "W") {
    action.kind = ActionKind::kWeightGradient;
  } else {
    return refuse(name, cell,
                  fmt::format("has kind '{}'; compute actions are F, B, I, W and OVERLAP_F_B "
                              "(communication follows from them)",
                              kind));
  }
  std::optional<int> number = to_number(cell.text.substr(0, kind_at));
  std::optional<int> micro_batch = to_number(cell.text.substr(kind_end));
  if (!number || !micro_batch) {
    return refuse(name, cell,
                  fmt::format("needs a stage and a micro-batch from 0 to {}, as 2F0", kMaxNumber));
  }
  action.number = *number;
  action.micro_batch = *micro_batch;
  return action;
}

/// One or two actions of a cell.
Result<std::vector<RawAction>> parse_cell(std::string_view name, const TextCell& cell) {
  if (cell.text.front() != '(') {
    STAGECOACH_ASSIGN_OR_RETURN(RawAction action, parse_action(name, cell));
    return std::vector<RawAction>{action};
  }
  size_t close = cell.text.find(')');
  if (close == std::string_view::npos || cell.text.substr(close + 1) != kOverlap) {
    return refuse(name, cell, "must read (ACTION;ACTION)OVERLAP_F_B");
  }
  TextCell inner{cell.text.substr(1, close - 1), cell.line, cell.column + 1};
  std::vector<TextCell> parts = split(inner, ';');
  if (parts.size() != 2) return refuse(name, cell, "must hold two actions, (2F0;1B3)OVERLAP_F_B");
  STAGECOACH_ASSIGN_OR_RETURN(RawAction first, parse_action(name, parts[0]));
  STAGECOACH_ASSIGN_OR_RETURN(RawAction second, parse_action(name, parts[1]));
  if (first.kind != ActionKind::kForward || second.kind != ActionKind::kBackward) {
    return refuse(name, cell, "must be a forward and a backward, in this order");
  }
  if (first.number == second.number && first.micro_batch == second.micro_batch) {
    first.kind = ActionKind::kForwardBackward;
    first.cell = cell;
    return std::vector<RawAction>{first};
  }
  first.with_next = true;
  return std::vector<RawAction>{first, second};
}

Result<std::vector<std::vector<RawAction>>> parse_rows(NamedText csv) {
  std::vector<std::vector<RawAction>> rows;
  for (const TextCell& line : lines_of(csv.text)) {
    std::vector<RawAction>& row = rows.emplace_back();
    for (const TextCell& cell : split(line, ',')) {
      if (cell.text.empty()) continue;
      STAGECOACH_ASSIGN_OR_RETURN(std::vector<RawAction> actions, parse_cell(csv.name, cell));
      row.insert(row.end(), actions.begin(), actions.end());
    }
  }
  if (rows.empty()) {
    return invalid_argument(
        fmt::format("{}: line 1, column 1: no rows; write one a device", csv.name));
  }
  return rows;
}

/// Reads a sidecar's lines into a plan without actions.
class SidecarReader {
 public:
  explicit SidecarReader(NamedText sidecar) : name_(sidecar.name), text_(sidecar.text) {}

  /// Index into Plan::stages per (kind, number).
  using StageIndex = std::map<std::pair<ActionKind, int>, int>;

  Status read(Plan& plan, StageIndex& stages) {
    for (const TextCell& line : lines_of(text_)) {
      if (trimmed(line).text.empty()) continue;
      std::vector<TextCell> cells = split(line, ',');
      if (cells[0].text == "stage") {
        STAGECOACH_RETURN_IF_ERROR(read_stage(cells, plan, stages));
      } else {
        STAGECOACH_RETURN_IF_ERROR(read_field(cells, plan));
      }
    }
    return Status::ok();
  }

 private:
  Status number(const TextCell& cell, int& value) const {
    std::optional<int> read = to_number(cell.text);
    if (!read) return refuse(name_, cell, fmt::format("must be a number from 0 to {}", kMaxNumber));
    value = *read;
    return Status::ok();
  }

  template <typename Enum, size_t kCount>
  Status choice(const TextCell& cell, const std::array<std::string_view, kCount>& names,
                Enum& value) const {
    auto found = std::find(names.begin(), names.end(), cell.text);
    if (found == names.end()) {
      return refuse(name_, cell, fmt::format("must be one of {}", fmt::join(names, ", ")));
    }
    value = static_cast<Enum>(found - names.begin());
    return Status::ok();
  }

  Status read_stage(const std::vector<TextCell>& cells, Plan& plan, StageIndex& stages) const {
    if (cells.size() != 5) return refuse(name_, cells[0], "needs NUMBER,KIND,FIRST,LAST after it");
    int stage_number = 0;
    Stage stage;
    STAGECOACH_RETURN_IF_ERROR(number(cells[1], stage_number));
    auto kind = std::find_if(kWrittenKinds.begin(), kWrittenKinds.end(), [&](ActionKind candidate) {
      return action_kind_name(candidate) == cells[2].text;
    });
    if (kind == kWrittenKinds.end())
      return refuse(name_, cells[2], "must be one of F, B, FB, I, W");
    stage.kind = *kind;
    STAGECOACH_RETURN_IF_ERROR(number(cells[3], stage.first_layer));
    STAGECOACH_RETURN_IF_ERROR(number(cells[4], stage.last_layer));
    if (stage.last_layer < stage.first_layer) {
      return refuse(name_, cells[4],
                    fmt::format("must be at least the first layer, {}", stage.first_layer));
    }
    int index = static_cast<int>(plan.stages.size());
    if (!stages.try_emplace({stage.kind, stage_number}, index).second) {
      return refuse(name_, cells[1], fmt::format("is already a stage of kind {}", cells[2].text));
    }
    plan.stages.push_back(stage);
    return Status::ok();
  }

  Status read_field(const std::vector<TextCell>& cells, Plan& plan) const {
    std::string_view key = cells[0].text;
    if (key == "in_flight_limit") {
      for (size_t index = 1; index < cells.size(); ++index) {
        STAGECOACH_RETURN_IF_ERROR(number(cells[index], plan.in_flight_limit.emplace_back()));
      }
      return Status::ok();
    }
    if (cells.size() != 2) return refuse(name_, cells[0], "needs one value after it");
    const TextCell& value = cells[1];
    if (key == "schedule") {
      plan.schedule = value.text;
      return Status::ok();
    }
    if (key == "admission") return choice(value, kAdmissions, plan.admission);
    if (key == "version_rule") return choice(value, kVersionRules, plan.version_rule);
    if (key == "update_scope") return choice(value, kUpdateScopes, plan.update_scope);
    if (key == "residence") return choice(value, kResidences, plan.residence);
    if (key == "micro_batches") return number(value, plan.micro_batches);
    if (key == "rounds") return number(value, plan.rounds);
    if (key == "accumulation") return number(value, plan.accumulation);
    if (key == "weight_copies") return number(value, plan.weight_copies);
    return refuse(
        name_, cells[0],
        "is unknown; keys are schedule, micro_batches, rounds, accumulation, admission, "
        "version_rule, update_scope, residence, weight_copies, in_flight_limit and stage");
  }

  std::string_view name_;
  std::string_view text_;
};

Result<Plan> with_sidecar(NamedText csv, const std::vector<std::vector<RawAction>>& rows,
                          NamedText sidecar) {
  Plan plan;
  SidecarReader::StageIndex stages;
  STAGECOACH_RETURN_IF_ERROR(SidecarReader(sidecar).read(plan, stages));
  for (const std::vector<RawAction>& row : rows) {
    std::vector<Action>& actions = plan.device_actions.emplace_back();
    for (const RawAction& raw : row) {
      auto found = stages.find({raw.kind, raw.number});
      if (found == stages.end()) {
        return refuse(csv.name, raw.cell,
                      fmt::format("names stage {} of kind {}, which {} does not have", raw.number,
                                  action_kind_name(raw.kind), sidecar.name));
      }
      if (raw.micro_batch >= plan.micro_batches) {
        return refuse(csv.name, raw.cell,
                      fmt::format("names micro-batch {}; {} says there are {}", raw.micro_batch,
                                  sidecar.name, plan.micro_batches));
      }
      actions.push_back(Action{found->second, raw.micro_batch, raw.with_next});
    }
  }
  return plan;
}

Plan without_sidecar(const std::vector<std::vector<RawAction>>& rows) {
  int stage_count = 0, micro_batches = 0;
  std::set<int> seen;
  bool bound = true;
  std::vector<std::vector<StageWork>> work;
  for (const std::vector<RawAction>& row : rows) {
    std::vector<StageWork>& list = work.emplace_back();
    std::set<int> here;
    for (const RawAction& raw : row) {
      list.push_back({raw.kind, raw.number, raw.micro_batch, raw.with_next});
      stage_count = std::max(stage_count, raw.number + 1);
      micro_batches = std::max(micro_batches, raw.micro_batch + 1);
      here.insert(raw.number);
    }
    for (int number : here) bound = seen.insert(number).second && bound;
  }
  Plan plan = build_plan("imported", micro_batches, single_layer_stages(stage_count), work);
  plan.residence = bound ? Residence::kBound : Residence::kStreamed;
  return plan;
}

}  // namespace

std::string plan_to_csv(const Plan& plan) {
  std::vector<int> numbers = stage_numbers(plan);
  auto write = [&](const Action& action, std::string_view kind) {
    return fmt::format("{}{}{}", numbers[action.stage], kind, action.micro_batch);
  };
  std::string text;
  for (const std::vector<Action>& actions : plan.device_actions) {
    for (size_t index = 0; index < actions.size(); ++index) {
      const Action& action = actions[index];
      ActionKind kind = plan.stage_of(action).kind;
      if (index > 0) text += ',';
      if (kind == ActionKind::kForwardBackward) {
        text += fmt::format("({};{}){}", write(action, "F"), write(action, "B"), kOverlap);
      } else if (action.with_next) {
        const Action& second = actions[++index];
        text += fmt::format("({};{}){}", write(action, action_kind_name(kind)),
                            write(second, action_kind_name(plan.stage_of(second).kind)), kOverlap);
      } else {
        text += write(action, action_kind_name(kind));
      }
    }
    text += '\n';
  }
  return text;
}

std::string plan_to_sidecar(const Plan& plan) {
  std::string text = fmt::format(
      "schedule,{}\nmicro_batches,{}\nrounds,{}\naccumulation,{}\nadmission,{}\nversion_rule,{}\n"
      "update_scope,{}\nresidence,{}\nweight_copies,{}\n",
      plan.schedule, plan.micro_batches, plan.rounds, plan.accumulation,
      kAdmissions[static_cast<size_t>(plan.admission)],
      kVersionRules[static_cast<size_t>(plan.version_rule)],
      kUpdateScopes[static_cast<size_t>(plan.update_scope)],
      kResidences[static_cast<size_t>(plan.residence)], plan.weight_copies);
  if (!plan.in_flight_limit.empty()) {
    text += fmt::format("in_flight_limit,{}\n", fmt::join(plan.in_flight_limit, ","));
  }
  std::vector<int> numbers = stage_numbers(plan);
  for (size_t index = 0; index < plan.stages.size(); ++index) {
    const Stage& stage = plan.stages[index];
    text += fmt::format("stage,{},{},{},{}\n", numbers[index], action_kind_name(stage.kind),
                        stage.first_layer, stage.last_layer);
  }
  return text;
}

Result<Plan> plan_from_csv(NamedText csv, std::optional<NamedText> sidecar) {
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<std::vector<RawAction>> rows, parse_rows(csv));
  if (sidecar) return with_sidecar(csv, rows, *sidecar);
  return without_sidecar(rows);
}

}  // namespace stagecoach
