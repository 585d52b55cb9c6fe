#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "core/file.h"
#include "scheduler/plan_csv.h"
#include "scheduler/plan_validation.h"
#include "scheduler/schedules/schedule_run.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "tools/plot/plot_file.h"
#include "tools/simulate_layers.h"
#include "tools/simulate_model.h"
#include "tools/simulation_output.h"
#include "tools/simulation_plot.h"
#include "tools/stage_time_file.h"

namespace stagecoach {

namespace {

constexpr int64_t kUnsetNumber = std::numeric_limits<int64_t>::min();
constexpr double kUnsetTime = std::numeric_limits<double>::quiet_NaN();

/// What the command line said. Numbers and times that were not given are the values above.
struct SimulateOptions {
  std::string schedule, compare, csv, trace, update, per_stage_times, plot, layer_times, devices;
  int64_t stages = kUnsetNumber, micro_batches = kUnsetNumber, tokens = kUnsetNumber;
  std::string model, dtype;
  int64_t sequence = 0, micro_batch_size = 1, lora_rank = 0;
  bool lora_experts = false;
  std::vector<int64_t> parameters;  ///< parallel to schedule_parameters()
  double forward = kUnsetTime, backward = kUnsetTime, input = kUnsetTime, weight = kUnsetTime;
  double hop = kUnsetTime, freed_at_input = kUnsetTime;
};

bool is_set(int64_t number) {
  return number != kUnsetNumber;
}
bool is_set(double time) {
  return !std::isnan(time);
}

Result<int> to_int(const char* name, int64_t value) {
  constexpr int64_t kMost = 1'000'000;
  if (value >= 0 && value <= kMost) return static_cast<int>(value);
  return invalid_argument(fmt::format("{} is {}; it must be from 0 to {}", name, value, kMost));
}

/// F, B, I and W from what was given of them; backward is the sum of its halves.
Result<StageTimes> stage_times(const SimulateOptions& options) {
  bool halves = is_set(options.input) || is_set(options.weight);
  if (halves && is_set(options.backward)) {
    return invalid_argument("--b is given and so is a half of it; give --b, or --i and --w");
  }
  if (halves && !(is_set(options.input) && is_set(options.weight))) {
    return invalid_argument("--i and --w go together; give both");
  }
  double backward = is_set(options.backward) ? options.backward : 2;
  StageTimes times;
  STAGECOACH_ASSIGN_OR_RETURN(times.forward_ns,
                              time_to_ns("--f", is_set(options.forward) ? options.forward : 1));
  STAGECOACH_ASSIGN_OR_RETURN(times.input_ns,
                              time_to_ns("--i", halves ? options.input : backward / 2));
  STAGECOACH_ASSIGN_OR_RETURN(times.weight_ns,
                              time_to_ns("--w", halves ? options.weight : backward / 2));
  times.backward_ns = times.input_ns + times.weight_ns;
  if (is_set(options.hop) && options.hop != 0) {
    STAGECOACH_ASSIGN_OR_RETURN(times.hop_ns, time_to_ns("--comm", options.hop));
  }
  return times;
}

/// The parameters of schedules that were given.
Status read_parameters(const SimulateOptions& options, ScheduleParameters& parameters) {
  for (size_t index = 0; index < options.parameters.size(); ++index) {
    if (!is_set(options.parameters[index])) continue;
    const ScheduleParameter& parameter = schedule_parameters()[index];
    std::string name = fmt::format("--{}", parameter.name);
    STAGECOACH_ASSIGN_OR_RETURN(int value, to_int(name.c_str(), options.parameters[index]));
    parameters.*parameter.value = value;
  }
  return Status::ok();
}

Result<ScheduleParameters> schedule_parameters_of(const SimulateOptions& options) {
  if (!is_set(options.stages) || !is_set(options.micro_batches)) {
    return invalid_argument(
        "give --stages and --microbatches, for example: stagecoach simulate --schedule 1f1b "
        "--stages 4 --microbatches 8");
  }
  ScheduleParameters parameters;
  STAGECOACH_ASSIGN_OR_RETURN(parameters.stages, to_int("--stages", options.stages));
  STAGECOACH_ASSIGN_OR_RETURN(parameters.micro_batches,
                              to_int("--microbatches", options.micro_batches));
  STAGECOACH_RETURN_IF_ERROR(read_parameters(options, parameters));
  if (options.update == "async") {
    parameters.asynchronous = 1;
  } else if (options.update == "barrier") {
    parameters.barrier = 1;
  } else if (!options.update.empty() && options.update != "overlap") {
    return invalid_argument(
        fmt::format("--update is '{}'; it must be barrier, overlap or async", options.update));
  }
  STAGECOACH_ASSIGN_OR_RETURN(parameters.times, stage_times(options));
  if (is_set(options.freed_at_input)) parameters.freed_at_input = options.freed_at_input;
  if (!options.per_stage_times.empty()) {
    STAGECOACH_ASSIGN_OR_RETURN(parameters.stage_times,
                                read_stage_times(options.per_stage_times, parameters.times.hop_ns));
    // A search plans with equal stages; the mean is the best single value.
    parameters.times = mean_of(parameters.stage_times);
  }
  return parameters;
}

double freed_at_input(const SimulateOptions& options) {
  return is_set(options.freed_at_input) ? options.freed_at_input : 0;
}

std::string sidecar_path(const std::string& csv) {
  return csv + ".stages";
}

/// Refuses the first parameter of schedules, besides `allowed`, that was given where it means
/// nothing.
Status refuse_parameters(const SimulateOptions& options, std::string_view allowed,
                         const char* because) {
  for (size_t index = 0; index < options.parameters.size(); ++index) {
    std::string_view name = schedule_parameters()[index].name;
    if (!is_set(options.parameters[index]) || name == allowed) continue;
    return invalid_argument(fmt::format("--{} {}; leave it out", name, because));
  }
  return Status::ok();
}

/// Reads the plan in --csv and its sidecar.
Result<Plan> read_order(const SimulateOptions& options) {
  if (is_set(options.stages) || is_set(options.micro_batches)) {
    return invalid_argument(
        "--stages and --microbatches come from the file; give --schedule to write one instead");
  }
  STAGECOACH_RETURN_IF_ERROR(
      refuse_parameters(options, "", "comes from the file that --csv reads"));
  if (!options.update.empty() || !options.per_stage_times.empty()) {
    return invalid_argument(
        fmt::format("{} does not go with an order that is read by --csv; leave it out",
                    options.update.empty() ? "--per-stage-times" : "--update"));
  }
  STAGECOACH_ASSIGN_OR_RETURN(std::string csv, read_file(options.csv));
  std::string beside = sidecar_path(options.csv);
  Result<std::string> sidecar = read_file(beside);
  std::optional<NamedText> layers;
  if (sidecar.is_ok()) {
    layers = NamedText{beside, *sidecar};
  } else if (sidecar.status().code() != StatusCode::kNotFound) {
    return sidecar.status();
  }
  STAGECOACH_ASSIGN_OR_RETURN(Plan plan, plan_from_csv({options.csv, csv}, layers));
  Status valid = validate_plan(plan, plan.layer_count(), false);
  if (!valid.is_ok()) return valid.with_context(options.csv);
  return plan;
}

/// The notation that the plan's schedule is written in.
OrderNotation notation_of(const Plan& plan) {
  Result<const Schedule*> known = find_schedule(plan.schedule);
  return known.is_ok() ? (*known)->notation : RunConditions{}.notation;
}

Result<LayerSimulation> layer_simulation(const SimulateOptions& options) {
  LayerSimulation simulation;
  simulation.schedule = options.schedule;
  simulation.layer_times = options.layer_times;
  simulation.devices = options.devices;
  simulation.update = options.update;
  simulation.freed_at_input = freed_at_input(options);
  if (is_set(options.micro_batches)) {
    STAGECOACH_ASSIGN_OR_RETURN(simulation.micro_batches,
                                to_int("--microbatches", options.micro_batches));
  }
  if (is_set(options.tokens)) {
    STAGECOACH_ASSIGN_OR_RETURN(int tokens, to_int("--microbatch-tokens", options.tokens));
    if (tokens == 0) return invalid_argument("--microbatch-tokens is 0; it must be at least 1");
    simulation.tokens = tokens;
  }
  STAGECOACH_RETURN_IF_ERROR(read_parameters(options, simulation.parameters));
  return simulation;
}

/// Simulates the plan in a file.
Result<SimulatedRun> run_file(const SimulateOptions& options, const CommandContext& context) {
  STAGECOACH_ASSIGN_OR_RETURN(Plan plan, read_order(options));
  RunConditions conditions;
  conditions.notation = notation_of(plan);
  if (!options.layer_times.empty()) {
    STAGECOACH_ASSIGN_OR_RETURN(LayerSimulation simulation, layer_simulation(options));
    Result<SimulatedRun> run =
        simulate_layers_in_order(std::move(plan), conditions.notation, simulation, context);
    return run.is_ok() ? std::move(run) : run.status().with_context(options.csv);
  }
  STAGECOACH_ASSIGN_OR_RETURN(conditions.times, stage_times(options));
  conditions.freed_at_input = freed_at_input(options);
  // The times of other streamed schedules are those of a slot.
  Result<const Schedule*> known = find_schedule(plan.schedule);
  bool has_chunks =
      plan.residence == Residence::kBound || (known.is_ok() && (*known)->chunks != nullptr);
  if (has_chunks) conditions.chunks = stages_per_device(plan);
  SimulatedRun shown;
  STAGECOACH_ASSIGN_OR_RETURN(shown.run, run_plan(std::move(plan), conditions));
  return shown;
}

/// Simulates a schedule by the parameters that it has.
Result<SimulatedRun> run_named(const SimulateOptions& options, const ScheduleParameters& parameters,
                               const std::string& name, const CommandContext& context) {
  if (!options.layer_times.empty()) {
    STAGECOACH_ASSIGN_OR_RETURN(LayerSimulation simulation, layer_simulation(options));
    simulation.schedule = name;
    simulation.parameters = parameters;
    return simulate_layers(simulation, context);
  }
  SimulatedRun shown;
  STAGECOACH_ASSIGN_OR_RETURN(shown.run, run_schedule(name, parameters, freed_at_input(options)));
  return shown;
}

/// The parameters that schedules are simulated with, whichever times they get.
Result<ScheduleParameters> given_parameters(const SimulateOptions& options) {
  if (options.layer_times.empty()) return schedule_parameters_of(options);
  ScheduleParameters parameters;
  STAGECOACH_RETURN_IF_ERROR(read_parameters(options, parameters));
  return parameters;
}

Status write_files(const SimulateOptions& options, const SimulatedRun& shown) {
  if (!options.csv.empty() && !options.schedule.empty()) {
    STAGECOACH_RETURN_IF_ERROR(write_file_atomically(options.csv, plan_to_csv(shown.run.plan)));
    STAGECOACH_RETURN_IF_ERROR(
        write_file_atomically(sidecar_path(options.csv), plan_to_sidecar(shown.run.plan)));
  }
  if (!options.trace.empty()) {
    STAGECOACH_RETURN_IF_ERROR(write_simulation_trace(options.trace, shown));
  }
  return options.plot.empty() ? Status::ok() : write_plot(options.plot, shown);
}

/// Refuses a file of option `name` in a folder that does not exist.
Status check_parent_folder(const char* name, const std::string& file) {
  if (file.empty()) return Status::ok();
  std::filesystem::path parent = std::filesystem::path(file).parent_path();
  std::error_code ignored;
  if (parent.empty() || std::filesystem::is_directory(parent, ignored)) return Status::ok();
  return invalid_argument(fmt::format("{} is '{}', but there is no folder '{}'; make it first",
                                      name, file, parent.string()));
}

/// What can be known of the files before anything is written.
Status check_files(const SimulateOptions& options) {
  if (!options.plot.empty()) STAGECOACH_RETURN_IF_ERROR(check_plot_path(options.plot));
  const std::string order = options.schedule.empty() ? "" : options.csv;
  const std::vector<std::pair<const char*, std::string>> files = {
      {"--csv", order},
      {"--csv's sidecar", order.empty() ? "" : sidecar_path(order)},
      {"--trace", options.trace},
      {"--plot", options.plot}};
  for (size_t i = 0; i < files.size(); ++i) {
    for (size_t j = i + 1; j < files.size(); ++j) {
      if (files[i].second.empty() || files[i].second != files[j].second) continue;
      return invalid_argument(fmt::format("{} and {} both name '{}'; give each its own file",
                                          files[i].first, files[j].first, files[i].second));
    }
    STAGECOACH_RETURN_IF_ERROR(check_parent_folder(files[i].first, files[i].second));
    std::error_code ignored;
    if (!std::filesystem::is_directory(files[i].second, ignored)) continue;
    return invalid_argument(
        fmt::format("{} is '{}', which is a folder; name a file", files[i].first, files[i].second));
  }
  return Status::ok();
}

Result<int> simulate_one(const SimulateOptions& options, const CommandContext& context) {
  STAGECOACH_RETURN_IF_ERROR(check_files(options));
  SimulatedRun shown;
  if (options.schedule.empty()) {
    STAGECOACH_ASSIGN_OR_RETURN(shown, run_file(options, context));
  } else {
    STAGECOACH_ASSIGN_OR_RETURN(ScheduleParameters parameters, given_parameters(options));
    STAGECOACH_ASSIGN_OR_RETURN(shown, run_named(options, parameters, options.schedule, context));
  }
  STAGECOACH_RETURN_IF_ERROR(write_files(options, shown));
  fmt::print("{}", context.json ? run_to_json(shown).dump() + "\n" : run_to_text(shown));
  return kExitOk;
}

/// `parameters` without those that `schedule` does not have, so that one command line suits all.
ScheduleParameters only_its_own(const Schedule& schedule, ScheduleParameters parameters) {
  for (const ScheduleParameter& parameter : schedule_parameters()) {
    const std::vector<std::string_view>& own = schedule.parameters;
    if (std::find(own.begin(), own.end(), parameter.name) == own.end()) {
      (parameters.*parameter.value).reset();
    }
  }
  return parameters;
}

Result<int> compare(const SimulateOptions& options, const CommandContext& context) {
  if (!options.schedule.empty() || !options.csv.empty() || !options.trace.empty() ||
      !options.plot.empty()) {
    return invalid_argument(
        "--compare names its schedules itself and writes no files; leave out --schedule, --csv, "
        "--trace and --plot");
  }
  STAGECOACH_ASSIGN_OR_RETURN(ScheduleParameters parameters, given_parameters(options));
  std::vector<ComparedRun> rows;
  bool all_run = true;
  std::string names = options.compare + ",";
  for (size_t begin = 0, end; (end = names.find(',', begin)) != std::string::npos;
       begin = end + 1) {
    std::string name = names.substr(begin, end - begin);
    STAGECOACH_ASSIGN_OR_RETURN(const Schedule* schedule, find_schedule(name));
    Result<SimulatedRun> run =
        run_named(options, only_its_own(*schedule, parameters), name, context);
    all_run = all_run && run.is_ok();
    rows.push_back({name, std::move(run)});
  }
  fmt::print("{}", context.json ? rows_to_json(rows).dump() + "\n" : rows_to_text(rows));
  return all_run ? kExitOk : kExitPartial;
}

/// Refuses options that layer times leave no room for, and the absence of those they need.
Status check_layer_options(const SimulateOptions& options) {
  bool has_times = is_set(options.forward) || is_set(options.backward) || is_set(options.input) ||
                   is_set(options.weight) || is_set(options.hop) ||
                   !options.per_stage_times.empty();
  bool names_one = !options.schedule.empty() || !options.compare.empty();
  bool reads_order = !names_one && !options.csv.empty();
  if (!is_set(options.stages) && !has_times && !options.devices.empty() &&
      (reads_order || (names_one && is_set(options.micro_batches)))) {
    return Status::ok();
  }
  return invalid_argument(
      "--layer-times goes with --schedule or --compare, --devices, --microbatches, --update and "
      "the "
      "schedule's own parameters, for example: stagecoach simulate --layer-times times.json "
      "--devices sim:8xrtx4090 --schedule roundpipe --microbatches 16");
}

Result<int> simulate_planned_model(const SimulateOptions& options, const CommandContext& context) {
  bool has_times = is_set(options.forward) || is_set(options.backward) || is_set(options.input) ||
                   is_set(options.weight) || is_set(options.hop) ||
                   !options.per_stage_times.empty() || !options.layer_times.empty();
  bool has_files = !options.csv.empty() || !options.plot.empty() || !options.compare.empty();
  if (is_set(options.stages) || has_times || has_files || options.schedule.empty() ||
      options.devices.empty() || !is_set(options.micro_batches)) {
    return invalid_argument(
        "--model goes with --schedule, --devices, --microbatches, --micro-batch-size, --sequence, "
        "--dtype, --lora-rank, --lora-experts, --round, --update and --trace, for example: "
        "stagecoach "
        "simulate "
        "--model qwen3-8b --devices sim:8xrtx4090 --schedule roundpipe --microbatches 16");
  }
  STAGECOACH_RETURN_IF_ERROR(
      refuse_parameters(options, "round", "does not go with --model, whose stages are planned"));
  if (is_set(options.tokens) || is_set(options.freed_at_input)) {
    return invalid_argument(
        fmt::format("{} does not go with --model; leave it out",
                    is_set(options.tokens) ? "--microbatch-tokens" : "--free-at-i"));
  }
  ModelSimulation simulation;
  simulation.model = {
      options.model,     options.dtype, options.sequence,    options.micro_batch_size,
      options.lora_rank, false,         options.lora_experts};
  simulation.schedule = options.schedule;
  simulation.devices = options.devices;
  simulation.update = options.update;
  simulation.trace = options.trace;
  STAGECOACH_ASSIGN_OR_RETURN(simulation.micro_batches,
                              to_int("--microbatches", options.micro_batches));
  STAGECOACH_RETURN_IF_ERROR(read_parameters(options, simulation.parameters));
  STAGECOACH_RETURN_IF_ERROR(check_parent_folder("--trace", options.trace));
  return simulate_model(simulation, context);
}

Result<int> run_simulate(const SimulateOptions& options, const CommandContext& context) {
  if (!options.model.empty()) return simulate_planned_model(options, context);
  if (options.sequence != 0 || options.lora_rank != 0 || options.lora_experts ||
      options.micro_batch_size != 1 || !options.dtype.empty()) {
    return invalid_argument(
        "--sequence, --micro-batch-size, --dtype, --lora-rank and --lora-experts go with --model");
  }
  if (!options.layer_times.empty()) {
    STAGECOACH_RETURN_IF_ERROR(check_layer_options(options));
  } else if (!options.devices.empty() || is_set(options.tokens)) {
    return invalid_argument(
        fmt::format("{} goes with --layer-times{}; give --stages for equal devices",
                    options.devices.empty() ? "--microbatch-tokens" : "--devices",
                    options.devices.empty() ? "" : " or --model"));
  }
  if (!options.compare.empty()) return compare(options, context);
  if (options.schedule.empty() && options.csv.empty()) {
    return invalid_argument("name a --schedule, schedules to --compare, or a --csv file to read");
  }
  return simulate_one(options, context);
}

std::string notes() {
  std::string text = "schedules (those marked * train):\n";
  for (const Schedule& schedule : all_schedules()) {
    text +=
        fmt::format("  {}{:<15}{}\n", schedule.trains ? '*' : ' ', schedule.name, schedule.summary);
  }
  return text +
         "\nTimes are per micro-batch on 1/N of the model, in any one unit; a schedule of V "
         "chunks\n"
         "divides them by V. For roundpipe, single and slidedp --f and --b are the times of one\n"
         "slot. Both definitions of the idle share are printed: by makespan (all devices, first\n"
         "start to last end) and by span (the longest of one device).";
}

}  // namespace

Command make_simulate_command() {
  auto options = std::make_shared<SimulateOptions>();
  options->parameters.assign(schedule_parameters().size(), kUnsetNumber);
  Command command;
  command.name = "simulate";
  command.summary = "runs a schedule on virtual time";
  command.examples = {
      "stagecoach simulate --schedule 1f1b --stages 4 --microbatches 8",
      "stagecoach simulate --compare gpipe,1f1b,zb-h1,zb-v --stages 8 --microbatches 32 --json",
      "stagecoach simulate --schedule zb-v --stages 4 --microbatches 8 --csv order.csv",
      "stagecoach simulate --layer-times times.json --devices sim:8xrtx4090 --schedule roundpipe "
      "--microbatches 16",
      "stagecoach simulate --model qwen3-235b-a22b --devices sim:8xrtx4090 --schedule roundpipe "
      "--microbatches 16 --lora-rank 32 --sequence 2048"};
  command.notes = notes();
  command.options = {
      {"--schedule", "NAME", "the schedule, see below", &options->schedule},
      {"--compare", "A,B,…", "print one table of several schedules", &options->compare},
      {"--stages", "N", "devices", &options->stages},
      {"--microbatches", "M", "micro-batches of an iteration; of the run for paci, pipedream(-2bw)",
       &options->micro_batches},
      {"--f", "TIME", "forward (1)", &options->forward},
      {"--b", "TIME", "backward (2)", &options->backward},
      {"--i", "TIME", "input-gradient half of backward (half of --b)", &options->input},
      {"--w", "TIME", "weight-gradient half of backward (half of --b)", &options->weight},
      {"--comm", "TIME", "hand-over between devices (0)", &options->hop},
      {"--per-stage-times", "FILE", "lines F,B or F,I,W, one a model stage",
       &options->per_stage_times},
      {"--free-at-i", "X", "share of activations freed at I (0; searches plan with 0.5)",
       &options->freed_at_input},
      {"--update", "MODE", "between iterations: barrier, overlap (default) or async (roundpipe)",
       &options->update},
      {"--csv", "FILE", "write the order there (with --schedule) or read it", &options->csv},
      {"--trace", "FILE", "write a timeline for Perfetto", &options->trace},
      {"--plot", "FILE", "draw the timeline: .svg or .html", &options->plot},
      {"--layer-times", "FILE", "times and bytes of a model's layers (JSON), with --devices",
       &options->layer_times},
      {"--model", "MODEL", "run one iteration of a model's plan in the executor, with --devices",
       &options->model},
      {"--sequence", "T", "with --model: tokens of a sequence (its positions, at most 1024)",
       &options->sequence},
      {"--micro-batch-size", "B", "with --model: sequences of a micro-batch (1)",
       &options->micro_batch_size},
      {"--dtype", "D", "with --model: fp32 (default of GPT-2), bf16 (of the others) or fp16",
       &options->dtype},
      {"--lora-rank", "R", "with --model: train adapters of this rank alone", &options->lora_rank},
      {"--lora-experts", "", "with --lora-rank: count adapters of router and experts too",
       &options->lora_experts},
      {"--devices", "SPEC",
       "with --layer-times or --model: sim:8xrtx4090, or a machine: sim:8xFILE.json",
       &options->devices},
      {"--microbatch-tokens", "TOKENS",
       "with --layer-times: scale the times to micro-batches of so many", &options->tokens}};
  for (size_t index = 0; index < schedule_parameters().size(); ++index) {
    const ScheduleParameter& parameter = schedule_parameters()[index];
    if (parameter.name == "asynchronous" || parameter.name == "barrier")
      continue;  // --update says it
    command.options.push_back({fmt::format("--{}", parameter.name), "NUMBER",
                               std::string(parameter.meaning), &options->parameters[index]});
  }
  command.run = [options](const CommandContext& context) {
    return run_simulate(*options, context);
  };
  return command;
}

}  // namespace stagecoach
