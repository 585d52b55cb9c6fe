#include <cstdio>
#include <fmt/format.h>
#include <memory>

#include "core/bytes.h"
#include "core/file.h"
#include "core/json.h"
#include "testing/happens_before.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "train/training_loop.h"

namespace stagecoach {

namespace {

struct TrainOptions {
  std::string config;
  std::vector<std::string> set;
  std::string model;
  std::vector<std::string> data;
  std::string devices;
  bool dry_run = false;
  bool print_config = false;
  bool check_races = false;
};

constexpr const char* kNotes =
    "metrics (JSON lines on stdout with --json, always in DIR/metrics.jsonl):\n"
    "  loss            mean over the targets of the iteration, nats per token\n"
    "  tokens          targets trained on since the start of the run\n"
    "  tokens_per_s    those of the iterations since the last line, without evaluation and saving\n"
    "  grad_norm       over all parameters, before clipping\n"
    "  bubble          idle share of the compute lanes\n"
    "  validation_loss mean over the validation tokens, nats per token";

/// The value of an override as TOML text.
std::string quoted(const std::string& text) {
  return Json(text).dump();
}

std::vector<std::string> gather_overrides(const TrainOptions& options) {
  std::vector<std::string> overrides;
  if (!options.model.empty()) overrides.push_back("model.path=" + quoted(options.model));
  if (!options.data.empty()) {
    Json files = Json::array();
    for (const std::string& file : options.data) files.push_back(file);
    overrides.push_back("data.train=" + files.dump());
  }
  if (!options.devices.empty()) overrides.push_back("devices.use=" + quoted(options.devices));
  overrides.insert(overrides.end(), options.set.begin(), options.set.end());
  return overrides;
}

Result<TrainConfig> read_config(const TrainOptions& options) {
  std::vector<std::string> overrides = gather_overrides(options);
  if (options.config.empty()) return parse_train_config("", overrides, "command line");
  STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(options.config));
  return parse_train_config(text, overrides, options.config);
}

void print_summary(const Json& summary, const TrainConfig& config) {
  auto number = [&summary](const char* key) {
    const Json* value = summary.find(key);
    return value != nullptr && value->is_number() ? value->as_number() : 0.0;
  };
  fmt::print("loss {:.4f} -> {:.4f} in {} iterations", number("loss_first"), number("loss_last"),
             number("iterations"));
  if (summary.find("validation_loss")->is_number()) {
    fmt::print(", validation {:.4f} (bigram entropy {:.4f})", number("validation_loss"),
               number("bigram_entropy"));
  }
  fmt::print(
      "\n{:.0f} tokens/s, idle {:.1f} %, state {} and {} for more gradients on the host, {} up, {} "
      "down\n",
      number("tokens_per_s"), 100.0 * number("bubble_fraction"),
      format_bytes(static_cast<ByteCount>(number("state_bytes"))),
      format_bytes(static_cast<ByteCount>(number("landing_bytes"))),
      format_bytes(static_cast<ByteCount>(number("bytes_up"))),
      format_bytes(static_cast<ByteCount>(number("bytes_down"))));
  fmt::print("written to {}: summary.json, metrics.jsonl{}, checkpoint\n", config.output.dir,
             config.output.trace ? ", trace.json" : "");
}

void print_plan(const Json& plan) {
  for (const auto& [key, value] : plan.members()) {
    if (key == "plan") continue;
    fmt::print("{:<20} {}\n", key, value.dump());
  }
  fmt::print("plan, one line a device:\n{}\n", plan.find("plan")->as_string());
}

Result<TrainingOutcome> train(const TrainConfig& config, const TrainOptions& options,
                              const CommandContext& context) {
  LoopOptions loop{context.json, options.dry_run, {}};
  if (!options.check_races) return run_training(config, loop, context.backends);
  auto checker = std::make_shared<HappensBefore>();
  loop.race_count = [&checker] { return checker->race_count(); };
  BackendRegistry checked = check_races_of(context.backends, checker);
  Result<TrainingOutcome> outcome = run_training(config, loop, checked);
  for (const Race& race : checker->races()) {
    fmt::print(stderr, "race: {}\n", format_race(race));
  }
  fmt::print(stderr, "{} accesses checked, {} races\n", checker->access_count(),
             checker->race_count());
  return outcome;
}

Result<int> run(const TrainOptions& options, const CommandContext& context) {
  if (options.config.empty() && options.model.empty() && options.set.empty()) {
    return invalid_argument(
        "nothing to train; give --config FILE, or --model M --data F --devices D");
  }
  STAGECOACH_ASSIGN_OR_RETURN(TrainConfig config, read_config(options));
  if (options.print_config) {
    if (context.json) {
      fmt::print("{}\n", train_config_to_json(config).dump());
    } else {
      fmt::print("{}", train_config_to_toml(config));
    }
    return kExitOk;
  }
  STAGECOACH_ASSIGN_OR_RETURN(TrainingOutcome outcome, train(config, options, context));
  switch (outcome.end) {
    case TrainingEnd::kInterrupted:
      return kExitInterrupted;
    case TrainingEnd::kDryRun:
      if (context.json) {
        fmt::print("{}\n", outcome.summary.dump());
      } else {
        print_plan(outcome.summary);
      }
      return kExitOk;
    case TrainingEnd::kFinished:
      if (!context.json) print_summary(outcome.summary, config);
      return kExitOk;
    case TrainingEnd::kAlreadyFinished:
      return kExitOk;
  }
  return kExitOk;
}

}  // namespace

Command make_train_command() {
  auto options = std::make_shared<TrainOptions>();
  Command command;
  command.name = "train";
  command.summary = "trains a model from text, streaming its stages through the devices";
  command.examples = {
      "stagecoach train --config run.toml",
      "stagecoach train --config run.toml --set train.batch=32 output.dir=out2",
      "stagecoach train --model gpt2-folder --data text.txt --devices cpu:4[memory=64M]",
      "stagecoach train --config run.toml --dry-run"};
  command.notes = kNotes;
  command.options = {
      {"--config", "FILE", "configuration (TOML)", &options->config},
      {"--set", "KEY=VALUE…", "override keys of the configuration", &options->set},
      {"--model", "M", "Hugging Face folder, config.json or preset (model.path)", &options->model},
      {"--data", "FILE…", "training text (data.train)", &options->data},
      {"--devices", "SPEC", "devices to use (devices.use)", &options->devices},
      {"--dry-run", "", "check and plan, write nothing", &options->dry_run},
      {"--print-config", "", "print every key with its value", &options->print_config},
      {"--check-races", "", "look for work that nothing orders; summary.json counts it as races",
       &options->check_races}};
  command.run = [options](const CommandContext& context) { return run(*options, context); };
  return command;
}

}  // namespace stagecoach
