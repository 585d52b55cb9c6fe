#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <utility>

#include "core/printable.h"
#include "scheduler/schedules/schedule.h"
#include "tools/command.h"
#include "tools/executed_step.h"
#include "tools/exit_code.h"
#include "tools/model_options.h"
#include "tools/model_plan.h"
#include "tools/plan_output.h"

namespace stagecoach {

namespace {

struct PlanOptions {
  ModelOptions model;
  std::string devices, schedule = "roundpipe", profile;
  bool explain = false, max_sequence = false;
};

Status check_options(const PlanOptions& options) {
  STAGECOACH_RETURN_IF_ERROR(find_schedule(options.schedule).status());
  if (options.schedule != "roundpipe" && options.schedule != "single") {
    return unimplemented(
        fmt::format("--schedule is '{}': this version plans roundpipe and single; simulate "
                    "--layer-times cuts layers for the others",
                    options.schedule));
  }
  return check_model_options(options.model);
}

Json shares_to_json(const ModelPlan& plan) {
  Json list = Json::array();
  for (size_t index = 0; index < plan.setup.devices.size(); ++index) {
    const DeviceShare& share = plan.plan.shares[index];
    Json json = Json::object();
    json["id"] = plan.setup.devices[index].name;
    json["share"] = share.work;
    json["used"] = share.used;
    if (!share.used) json["reason"] = share.reason;
    list.push_back(std::move(json));
  }
  return list;
}

Json predicted_to_json(const ModelPlan& plan, const std::optional<ExecutedStep>& executed,
                       double tokens) {
  const StepPrediction& prediction = plan.plan.planned.prediction;
  Json json = Json::object();
  json["step_s"] = prediction.step_ns / 1e9;
  json["bubble"] = prediction.bubble;
  json["bottleneck"] = prediction.bottleneck();
  json["tokens_per_s"] = tokens / (prediction.step_ns / 1e9);
  json["lanes"] = lanes_to_json(prediction);
  json["isolated_step_s"] = prediction.makespan_ns / 1e9;
  json["verified_step_s"] =
      executed ? Json(static_cast<double>(executed->report.span_ns) / 1e9) : Json();
  return json;
}

Json updates_to_json(const ModelPlan& plan, const UpdateTimes& times, const ModelOptions& asked) {
  Json json = Json::object();
  json["mode"] = update_mode_name(plan.setup.update);
  json["waits_for_norm"] = plan.setup.gated;
  json["optimizer"] = asked.optimizer;
  json["moments"] = asked.moments;
  json["host_s"] = times.update_ns / 1e9;
  json["window_s"] = times.window_ns / 1e9;
  json["exposed_s"] = times.exposed_ns / 1e9;
  return json;
}

std::string updates_to_text(const ModelPlan& plan, const UpdateTimes& times,
                            const ModelOptions& asked) {
  return fmt::format(
      "updates: {} with {} moments, {}{}: {:.4g} ms of host time, {:.4g} ms of computing to hide "
      "them behind, {:.4g} ms of a step wait for them\n",
      asked.optimizer, asked.moments, update_mode_name(plan.setup.update),
      plan.setup.gated ? ", after the norm of all gradients" : "", times.update_ns / 1e6,
      times.window_ns / 1e6, times.exposed_ns / 1e6);
}

Json explanation_to_json(const PlanExplanation& explanation) {
  Json json = Json::object();
  json["link_hidden_from_round"] =
      explanation.hidden_from_round ? Json(*explanation.hidden_from_round) : Json();
  if (!explanation.rule) return json;
  json["roundpipe_rule"] = stages_to_json(explanation.rule->slots.stages);
  json["roundpipe_rule"]["step_s"] = explanation.rule->prediction.step_ns / 1e9;
  json["roundpipe_rule"]["bubble"] = explanation.rule->prediction.bubble;
  return json;
}

/// The plan run by the executor in virtual time, or why it was not.
struct Verification {
  std::optional<ExecutedStep> executed;
  std::string reason;
};

/// A plan is none the worse for not having been run: that takes address space for a whole model's
/// state, which a limit may refuse.
Result<Verification> verify(const ModelPlan& plan, const std::string& model, DType dtype,
                            const RatedDevices& rated) {
  Verification verification;
  if (executed_actions(plan) > kMostExecutedActions) {
    verification.reason = fmt::format("its {} actions are more than {}", executed_actions(plan),
                                      kMostExecutedActions);
    return verification;
  }
  Result<ExecutedStep> executed = execute_step(plan, model, dtype, rated, nullptr);
  if (executed.is_ok()) {
    verification.executed = std::move(executed).value();
  } else if (executed.status().code() == StatusCode::kResourceExhausted) {
    verification.reason =
        "no address space for the model's state (ulimit -v): " + executed.status().message();
  } else {
    return executed.status();
  }
  return verification;
}

std::string plan_to_text(const ModelPlan& plan, const Verification& verification, double tokens) {
  const StepPrediction& prediction = plan.plan.planned.prediction;
  std::string text = fmt::format(
      "{}\nlongest stage {:.4g} ms, planned in {:.1f} ms\n"
      "step {:.6g} ms, {:.6g} tokens/s, idle share {:.4f}, bound by {}\n{}\n"
      "one iteration on its own: predicted {:.6g} ms, {}\n",
      stages_to_text(plan.plan.planned.slots.stages), plan.plan.planned.t_max_ns / 1e6,
      plan.plan_ms, prediction.step_ns / 1e6, tokens / (prediction.step_ns / 1e9),
      prediction.bubble, prediction.bottleneck(), lanes_to_text(prediction),
      prediction.makespan_ns / 1e6,
      verification.executed
          ? fmt::format("{:.6g} ms by the executor in virtual time",
                        static_cast<double>(verification.executed->report.span_ns) / 1e6)
          : "not verified: " + verification.reason);
  text += memory_to_text(plan);
  for (size_t index = 0; index < plan.setup.devices.size(); ++index) {
    const DeviceShare& share = plan.plan.shares[index];
    text += share.used
                ? fmt::format("{}: {:.1f} % of the work\n", plan.setup.devices[index].name,
                              100 * share.work)
                : fmt::format("{}: left out: {}\n", plan.setup.devices[index].name, share.reason);
  }
  return text;
}

std::string explanation_to_text(const PlanExplanation& explanation) {
  std::string text =
      explanation.hidden_from_round
          ? fmt::format("the link is hidden from rounds of {} micro-batches of this size on\n",
                        *explanation.hidden_from_round)
          : "activations alone fill the link: larger rounds do not hide it\n";
  if (!explanation.rule) return text + "RoundPipe's own rule does not fit these devices\n";
  return text + fmt::format("RoundPipe's own rule: step {:.6g} ms, idle share {:.4f}: {}\n",
                            explanation.rule->prediction.step_ns / 1e6,
                            explanation.rule->prediction.bubble,
                            stages_to_text(explanation.rule->slots.stages));
}

/// What the command says, for both kinds of reader.
struct Answer {
  Json json = Json::object();
  std::string text;
};

void answer_updates(const ModelPlan& plan, const ModelOptions& asked, Answer& answer) {
  UpdateTimes times = update_times(plan);
  answer.json["updates"] = updates_to_json(plan, times, asked);
  answer.text += updates_to_text(plan, times, asked);
}

void answer_longest(const LongestSequences& longest, Answer& answer) {
  int64_t least = std::min({longest.device, longest.tokens_of_host, longest.positions});
  Json& json = answer.json["max_sequence"];
  json["tokens"] = least;
  json["device"] = longest.device;
  json["host"] = longest.tokens_of_host;
  json["positions"] = longest.positions;
  json["host_memory_bytes"] = longest.host.free_bytes;
  json["host_memory_source"] = longest.host.free_source;
  answer.text += fmt::format(
      "longest sequence {} tokens: device memory {} on any number of such devices, host memory "
      "({} by {}) {}, the model's positions {}\n",
      least, longest.device, format_bytes(longest.host.free_bytes), longest.host.free_source,
      longest.tokens_of_host, longest.positions);
}

Result<RatedDevices> rate_asked_devices(const PlanOptions& options, const CommandContext& context) {
  if (options.profile.empty()) return rate_devices(options.devices, context.backends);
  STAGECOACH_ASSIGN_OR_RETURN(MachineProfile profile, read_machine_profile(options.profile));
  return rate_devices(options.devices, context.backends, &profile);
}

Result<int> run(const PlanOptions& options, const CommandContext& context) {
  STAGECOACH_RETURN_IF_ERROR(check_options(options));
  const ModelOptions& asked = options.model;
  ModelPlanRequest request;
  STAGECOACH_ASSIGN_OR_RETURN(request.update, parse_update_mode(asked.update));
  // Plans are made for other machines too: this one's memory is no limit unless it is asked for.
  bool has_limits = !asked.host_memory.empty() || options.max_sequence;
  if (has_limits) {
    STAGECOACH_ASSIGN_OR_RETURN(request.host, host_limits_for(asked));
    request.checks_host = !asked.host_memory.empty();
  }
  STAGECOACH_ASSIGN_OR_RETURN(PlannedModel model, resolve_asked_model(asked));
  const Network& network = model.network;
  STAGECOACH_ASSIGN_OR_RETURN(RatedDevices rated, rate_asked_devices(options, context));
  if (options.schedule == "single" && rated.devices.size() != 1) {
    return invalid_argument(fmt::format("single has one device, not {}", rated.devices.size()));
  }
  request.shape = asked.shape(model.sequence);
  request.micro_batches = static_cast<int>(asked.micro_batches);
  request.rounds = static_cast<int>(asked.rounds);
  request.gated = asked_to_wait_for_norm(asked, network.dtype);
  request.moments = asked_moments(asked);
  double tokens = static_cast<double>(asked.batch * model.sequence);
  Answer answer;
  if (options.max_sequence) {
    answer_longest(longest_sequences(network, request, rated, model.positions), answer);
  }
  Result<ModelPlan> planned = plan_model(network, request, rated);
  if (!planned.is_ok()) {
    // The question was how long a sequence may be; nobody asked for this one.
    bool answered = options.max_sequence && asked.sequence == ModelOptions::kUnset &&
                    planned.status().code() == StatusCode::kResourceExhausted;
    if (!answered) return planned.status();
    answer.json["reason"] = planned.status().message();
    answer.text +=
        fmt::format("sequences of {} do not fit: {}\n", model.sequence, planned.status().message());
    fmt::print("{}", context.json ? answer.json.dump() + "\n" : answer.text);
    return kExitOk;
  }
  ModelPlan plan = std::move(planned).value();
  STAGECOACH_ASSIGN_OR_RETURN(Verification verification,
                              verify(plan, asked.model, network.dtype, rated));
  int64_t parameters = network.parameter_count(), trained = network.trained_parameter_count();
  answer.json["parameters"] = parameters;
  answer.json["trained_parameters"] = trained;
  answer.text += fmt::format("{} parameters, {} trained\n", parameters, trained);
  Json stages = stages_to_json(plan.plan.planned.slots.stages);
  for (const char* key : {"forward", "backward", "fused"}) answer.json[key] = stages[key];
  answer.json["t_max_s"] = plan.plan.planned.t_max_ns / 1e9;
  answer.json["plan_ms"] = plan.plan_ms;
  answer.json["predicted"] = predicted_to_json(plan, verification.executed, tokens);
  answer.json["memory"] = memory_to_json(plan);
  answer.json["shares"] = shares_to_json(plan);
  answer.text += plan_to_text(plan, verification, tokens);
  answer_updates(plan, asked, answer);
  if (options.explain) {
    PlanExplanation explanation = explain_plan(plan);
    answer.json["explain"] = explanation_to_json(explanation);
    answer.text += explanation_to_text(explanation);
  }
  rated.assumptions.push_back(plan.layer_times);
  for (const std::string& note : model.notes) rated.assumptions.push_back(note);
  for (const std::string& assumption : rated.assumptions) {
    answer.json["assumptions"].push_back(assumption);
    answer.text += fmt::format("assumed: {}\n", printable(assumption));
  }
  fmt::print("{}", context.json ? answer.json.dump() + "\n" : answer.text);
  return kExitOk;
}

}  // namespace

Command make_plan_command() {
  auto options = std::make_shared<PlanOptions>();
  Command command;
  command.name = "plan";
  command.summary = "cuts a model into stages and predicts a step";
  command.examples = {"stagecoach plan --model gpt2-medium --devices sim:4xrtx4090 --explain",
                      "stagecoach plan --model gpt2 --devices cpu:4[memory=512M,flops=20G] "
                      "--max-sequence --json",
                      "stagecoach plan --model qwen3-235b-a22b --devices sim:8xrtx4090 --lora-rank "
                      "32 --sequence 31744 --batch 8 --microbatches 8 --host-memory 745G"};
  command.options = {
      {"--model", "MODEL", "Hugging Face folder, config.json or preset", &options->model.model,
       true},
      {"--devices", "SPEC", "devices to plan for, such as sim:8xrtx4090", &options->devices, true},
      {"--schedule", "S", "roundpipe (default) or single", &options->schedule}};
  for (CommandOption& option : model_command_options(options->model)) {
    command.options.push_back(std::move(option));
  }
  for (CommandOption& option : optimizer_command_options(options->model)) {
    command.options.push_back(std::move(option));
  }
  command.options.insert(
      command.options.end(),
      {{"--host-memory", "SIZE", "what the host has (this machine's, and not checked)",
        &options->model.host_memory},
       {"--profile", "FILE", "rates that 'bench bandwidth --save-profile' measured of --devices",
        &options->profile},
       {"--explain", "", "what bounds the step, and RoundPipe's own plan", &options->explain},
       {"--max-sequence", "", "the longest sequence that fits each memory",
        &options->max_sequence}});
  command.run = [options](const CommandContext& context) { return run(*options, context); };
  return command;
}

}  // namespace stagecoach
