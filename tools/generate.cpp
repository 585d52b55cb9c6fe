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
#include "tools/prompt_tokenizer.h"
#include "train/interrupt.h"
#include "train/model_session.h"
#include "train/progress.h"
#include "train/sampling.h"

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
  bool chat = false;
  std::string tokenizer;
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

/// Extends the prompt's `ids` token by token, each from a whole pass over the window: no keys and
/// values are kept. Stops early at what ends an answer.
Status continue_text(Trainer& trainer, const GenerateOptions& options, int64_t window,
                     int64_t vocabulary, const EncodedPrompt& prompt, std::vector<int32_t>& ids) {
  int64_t allowed = std::min(vocabulary, prompt.vocabulary);
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
    const std::vector<int32_t>& ends = prompt.end_ids;
    if (std::find(ends.begin(), ends.end(), id) != ends.end()) break;
  }
  return Status::ok();
}

/// The vocabulary of the model must hold the prompt's ids.
Status check_prompt(const GenerateOptions& options, const EncodedPrompt& prompt,
                    int64_t vocabulary) {
  if (prompt.ids.empty()) {
    return invalid_argument("--prompt has no token; give text to continue");
  }
  int32_t largest = *std::max_element(prompt.ids.begin(), prompt.ids.end());
  if (largest < vocabulary) return Status::ok();
  return invalid_argument(fmt::format(
      "--prompt has the id {} and the vocabulary of '{}' is {}; give the tokenizer that the model "
      "was trained with",
      largest, options.model, vocabulary));
}

Result<int> run(const GenerateOptions& options, const CommandContext& context) {
  STAGECOACH_RETURN_IF_ERROR(check_options(options));
  InterruptGuard guard;
  STAGECOACH_ASSIGN_OR_RETURN(ModelSource source, resolve_model(options.model));
  Result<std::unique_ptr<PromptTokenizer>> opened =
      open_prompt_tokenizer(source, options.tokenizer);
  if (!opened.is_ok()) return opened.status();
  PromptTokenizer& tokenizer = **opened;
  Architecture shape = source.architecture();
  int64_t vocabulary = shape.vocabulary;
  Result<EncodedPrompt> encoded = tokenizer.encode(options.prompt, options.chat);
  if (InterruptGuard::is_interrupted()) return kExitInterrupted;
  if (!encoded.is_ok()) return encoded.status().with_context("--prompt");
  STAGECOACH_RETURN_IF_ERROR(check_prompt(options, *encoded, vocabulary));
  std::vector<int32_t> ids = encoded->ids;
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
  Status status =
      continue_text(*session.trainer, options, config.data.sequence, vocabulary, *encoded, ids);
  if (InterruptGuard::is_interrupted()) return kExitInterrupted;
  STAGECOACH_RETURN_IF_ERROR(status);
  STAGECOACH_ASSIGN_OR_RETURN(std::string added, tokenizer.added_text(ids, prompt_size));
  // Of a chat the answer alone: what is before it is the template's.
  std::string text = options.chat ? added : options.prompt + added;
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
  command.summary = "continues a text, token by token, with a trained model";
  command.examples = {
      "stagecoach generate --model out/checkpoint --prompt \"In the beginning \" --tokens 200",
      "stagecoach generate --model out/checkpoint --prompt \"And \" --temperature 0 --json",
      "stagecoach generate --model models/qwen3 --prompt \"Why is the sky blue?\" --chat"};
  command.notes =
      "The same model, prompt, options and seed give the same text. Prompts of models with a\n"
      "tokenizer.json are tokenised by stagecoach-prepare, which makes a Python environment of "
      "its\n"
      "own on first use.";
  command.options = {
      {"--model", "M", "Hugging Face folder with weights, such as a checkpoint", &options->model,
       true},
      {"--prompt", "TEXT", "text to continue", &options->prompt, true},
      {"--tokens", "N", "tokens to add at most (default: 200)", &options->tokens},
      {"--temperature", "X", "0: likeliest token; 1: as learned (default: 0.8)",
       &options->temperature},
      {"--top-p", "P", "least probability mass drawn from (default: 0.95)", &options->top_p},
      {"--seed", "S", "of the draws (default: 1)", &options->seed},
      {"--chat", "", "the prompt is what a user says: use the model's chat template",
       &options->chat},
      {"--tokenizer", "DIR", "folder of tokenizer.json, or \"bytes\" (default: the model's)",
       &options->tokenizer},
      {"--devices", "SPEC", "devices to use (default: cpu:1)", &options->devices}};
  command.run = [options](const CommandContext& context) { return run(*options, context); };
  return command;
}

}  // namespace stagecoach
