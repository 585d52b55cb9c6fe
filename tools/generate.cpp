#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <span>

#include "core/json.h"
#include "core/random.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "train/interrupt.h"
#include "train/model_session.h"
#include "train/model_tokenizer.h"
#include "train/progress.h"
#include "train/sampling.h"
#include "train/token_builder.h"

namespace stagecoach {

namespace {

constexpr int64_t kMaxTokens = 1 << 20;
/// Keeps the draws apart from every other use of the seed.
constexpr uint32_t kSamplingSite = 0x5341'4d50;

struct GenerateOptions {
  std::string model;
  std::string prompt;
  int64_t tokens = 200;
  double temperature = 0.8;
  double top_p = 0.95;
  int64_t seed = 1;
  std::string devices = "cpu:1";
};

Status check_options(const GenerateOptions& options) {
  if (options.tokens < 1 || options.tokens > kMaxTokens) {
    return invalid_argument(
        fmt::format("--tokens is {}; it must be 1 to {}", options.tokens, kMaxTokens));
  }
  if (!(options.temperature >= 0.0) || !std::isfinite(options.temperature)) {
    return invalid_argument(
        fmt::format("--temperature is {}; it must be 0 (likeliest token) or more, for example 0.8",
                    options.temperature));
  }
  if (!(options.top_p > 0.0 && options.top_p <= 1.0)) {
    return invalid_argument(fmt::format(
        "--top-p is {}; it must be above 0 and at most 1, for example 0.95", options.top_p));
  }
  if (options.seed < 0) {
    return invalid_argument(fmt::format("--seed is {}; it must be 0 or more", options.seed));
  }
  return Status::ok();
}

/// Extends `ids` token by token. Stops early at a separator, which ends a document.
Status continue_text(Trainer& trainer, const GenerateOptions& options, int64_t window,
                     int64_t vocabulary, std::vector<int32_t>& ids) {
  int64_t allowed = std::min(vocabulary, kByteVocabulary + 1);
  RandomKey key{static_cast<uint64_t>(options.seed), 0, 0, 0, kSamplingSite};
  SamplingOptions sampling{options.temperature, options.top_p};
  for (int64_t step = 0; step < options.tokens; ++step) {
    if (InterruptGuard::is_interrupted()) return cancelled("generation was interrupted");
    int64_t seen = std::min(window, static_cast<int64_t>(ids.size()));
    std::vector<int32_t> inputs(ids.end() - seen, ids.end());
    inputs.resize(static_cast<size_t>(window), 0);  // causal: what follows cannot be seen
    STAGECOACH_ASSIGN_OR_RETURN(std::vector<float> logits,
                                trainer.forward(HostTensor::of(inputs, {1, window})));
    std::span<const float> last(logits.data() + (seen - 1) * vocabulary,
                                static_cast<size_t>(allowed));
    int32_t id = sample_token(last, sampling, random_uniform(key, static_cast<uint64_t>(step)));
    if (id < 0) return data_loss(fmt::format("no logit of token {} is finite", step + 1));
    ids.push_back(id);
    if (id == kByteSeparator) break;
  }
  return Status::ok();
}

Result<int> run(const GenerateOptions& options, const CommandContext& context) {
  STAGECOACH_RETURN_IF_ERROR(check_options(options));
  InterruptGuard guard;
  STAGECOACH_ASSIGN_OR_RETURN(ModelSource source, resolve_model(options.model));
  STAGECOACH_RETURN_IF_ERROR(check_model_tokenizer(
      options.model, kBytesTokenizer, "--prompt",
      "prompts with other tokenizers are not here yet: export the model and generate with "
      "transformers"));
  Architecture shape = source.architecture();
  int64_t vocabulary = shape.vocabulary;
  if (vocabulary < kByteVocabulary) {
    return invalid_argument(
        fmt::format("the vocabulary of '{}' is {}; the byte tokenizer needs {} or more",
                    options.model, vocabulary, kByteVocabulary));
  }
  std::vector<int32_t> ids;
  for (unsigned char byte : options.prompt) ids.push_back(byte);
  auto prompt_size = static_cast<int64_t>(ids.size());
  TrainConfig config;
  config.model.path = options.model;
  config.devices.use = options.devices;
  config.output.trace = false;
  config.train.batch = 1;
  config.train.micro_batches = 1;
  config.data.sequence = std::min(shape.positions, prompt_size + options.tokens);
  Progress progress;
  progress.phase("loading the model");
  STAGECOACH_ASSIGN_OR_RETURN(
      ModelSession session,
      open_model_session(context.backends, config, NetworkHead::kLogits, progress));
  progress.phase("generating");
  Status status = continue_text(*session.trainer, options, config.data.sequence, vocabulary, ids);
  if (InterruptGuard::is_interrupted()) return kExitInterrupted;
  STAGECOACH_RETURN_IF_ERROR(status);
  std::string text;
  for (int32_t id : ids) text += id < kByteVocabulary ? static_cast<char>(id) : '\n';
  if (context.json) {
    Json json = Json::object();
    json["text"] = text;
    json["tokens"] = static_cast<int64_t>(ids.size()) - prompt_size;
    for (auto id = ids.begin() + prompt_size; id != ids.end(); ++id) {
      json["token_ids"].push_back(*id);
    }
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("{}\n", text);
  }
  return kExitOk;
}

}  // namespace

Command make_generate_command() {
  auto options = std::make_shared<GenerateOptions>();
  Command command;
  command.name = "generate";
  command.summary = "continues a text, byte by byte, with a trained model";
  command.examples = {
      "stagecoach generate --model out/checkpoint --prompt \"In the beginning \" --tokens 200",
      "stagecoach generate --model out/checkpoint --prompt \"And \" --temperature 0 --json"};
  command.notes = "The same model, prompt, options and seed give the same text.";
  command.options = {
      {"--model", "M", "Hugging Face folder with weights, such as a checkpoint", &options->model,
       true},
      {"--prompt", "TEXT", "text to continue", &options->prompt, true},
      {"--tokens", "N", "tokens to add at most (default: 200)", &options->tokens},
      {"--temperature", "X", "0: likeliest token; 1: as learned (default: 0.8)",
       &options->temperature},
      {"--top-p", "P", "least probability mass drawn from (default: 0.95)", &options->top_p},
      {"--seed", "S", "of the draws (default: 1)", &options->seed},
      {"--devices", "SPEC", "devices to use (default: cpu:1)", &options->devices}};
  command.run = [options](const CommandContext& context) { return run(*options, context); };
  return command;
}

}  // namespace stagecoach
