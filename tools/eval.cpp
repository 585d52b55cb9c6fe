#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <limits>
#include <memory>

#include "core/json.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "tools/planned_model.h"
#include "train/data.h"
#include "train/evaluation.h"
#include "train/interrupt.h"
#include "train/model_session.h"
#include "train/model_tokenizer.h"
#include "train/progress.h"

namespace stagecoach {

namespace {

constexpr int64_t kBatch = 8;
/// Of a number that was not given; not a value one would give.
constexpr int64_t kUnset = std::numeric_limits<int64_t>::min();

struct EvalOptions {
  std::string model;
  std::vector<std::string> data;
  int64_t sequence = kUnset;
  std::string devices = "cpu:1";
};

Result<int> run(const EvalOptions& options, const CommandContext& context) {
  InterruptGuard guard;
  TrainConfig config;
  config.model.path = options.model;
  config.devices.use = options.devices;
  config.output.trace = false;
  config.train.batch = kBatch;
  config.train.micro_batches = kBatch;
  STAGECOACH_ASSIGN_OR_RETURN(ModelSource source, resolve_model(options.model));
  Architecture shape = source.architecture();
  config.data.sequence =
      options.sequence != kUnset ? options.sequence : std::min(kDefaultSequence, shape.positions);
  Progress progress;
  progress.phase("reading data");
  STAGECOACH_ASSIGN_OR_RETURN(TokenData data, read_token_data({options.data, shape.vocabulary,
                                                               kBytesTokenizer, Packing::kAuto}));
  STAGECOACH_RETURN_IF_ERROR(check_model_tokenizer(
      options.model, data.tokenizer, fmt::format("'{}'", options.data.front()),
      fmt::format("run stagecoach-prepare --tokenizer DIR --out PREPARED \"{}\" with the folder "
                  "DIR of the model's tokenizer.json, and give the .bin file that it writes",
                  options.data.front())));
  STAGECOACH_ASSIGN_OR_RETURN(TokenWindows windows,
                              TokenWindows::create(data, config.data.sequence, true));
  config.data.packing = packing_name(data.packing);
  for (const std::string& note : data.notes) progress.line(note);
  progress.phase("loading the model");
  STAGECOACH_ASSIGN_OR_RETURN(
      ModelSession session,
      open_model_session(context.backends, config, NetworkHead::kLoss, progress));
  progress.phase("evaluating");
  Result<Evaluation> result = evaluate_windows(*session.trainer, windows, kBatch, data.count);
  if (InterruptGuard::is_interrupted()) return kExitInterrupted;
  if (!result.is_ok()) return result.status();
  double perplexity = std::exp(result->loss);
  if (context.json) {
    Json json = Json::object();
    json["loss"] = result->loss;
    json["perplexity"] = perplexity;
    json["tokens"] = result->tokens;
    json["sequence"] = config.data.sequence;
    STAGECOACH_ASSIGN_OR_RETURN(double entropy, bigram_entropy_of(windows, data.count));
    json["bigram_entropy"] = entropy;
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("loss {:.4f} nats per token, perplexity {:.3f}, over {} tokens\n", result->loss,
               perplexity, result->tokens);
  }
  return kExitOk;
}

}  // namespace

Command make_eval_command() {
  auto options = std::make_shared<EvalOptions>();
  Command command;
  command.name = "eval";
  command.summary = "computes loss and perplexity of a model on text or tokens";
  command.examples = {"stagecoach eval --model out/checkpoint --data validation.txt",
                      "stagecoach eval --model out/checkpoint --data a.txt --sequence 256 --json"};
  command.options = {
      {"--model", "M", "Hugging Face folder with weights, such as a checkpoint", &options->model,
       true},
      {"--data", "FILE…", "text, JSONL or token files (.bin) to evaluate on", &options->data, true},
      {"--sequence", "T", "tokens of a window (default: the model's positions, at most 1024)",
       &options->sequence},
      {"--devices", "SPEC", "devices to use (default: cpu:1)", &options->devices}};
  command.run = [options](const CommandContext& context) -> Result<int> {
    if (options->sequence != kUnset && options->sequence < 1) {
      return invalid_argument(fmt::format("--sequence is {}; it must be 1 or more, for example 128",
                                          options->sequence));
    }
    return run(*options, context);
  };
  return command;
}

}  // namespace stagecoach
