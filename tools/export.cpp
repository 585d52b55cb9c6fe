#include <fmt/format.h>
#include <memory>

#include "core/json.h"
#include "core/log.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "train/interrupt.h"
#include "train/model_export.h"
#include "train/progress.h"

namespace stagecoach {

namespace {

struct ExportArguments {
  std::string checkpoint, out, dtype, max_shard_size;
  bool merge_lora = false;
};

Result<ExportOptions> parse(const ExportArguments& arguments) {
  ExportOptions options;
  options.checkpoint = arguments.checkpoint;
  options.out = arguments.out;
  options.merge_lora = arguments.merge_lora;
  if (!arguments.dtype.empty()) {
    Result<DType> dtype = parse_compute_dtype(arguments.dtype);
    if (!dtype.is_ok()) return dtype.status().with_context("--dtype");
    options.dtype = *dtype;
  }
  if (!arguments.max_shard_size.empty()) {
    Result<ByteCount> size = parse_bytes(arguments.max_shard_size);
    if (!size.is_ok()) return size.status().with_context("--max-shard-size");
    if (*size < 1) return invalid_argument("--max-shard-size is 0; it must be 1 or more");
    options.max_file_bytes = *size;
  }
  return options;
}

Json to_json(const ExportReport& report, const std::string& out) {
  Json json = Json::object();
  json["checkpoint"] = report.checkpoint;
  json["iteration"] = report.iteration;
  json["out"] = out;
  json["dtype"] = report.dtype;
  json["weight_bytes"] = report.weight_bytes;
  json["files"] = Json::array();
  for (const std::string& file : report.files) json["files"].push_back(file);
  json["notes"] = Json::array();
  for (const std::string& note : report.notes) json["notes"].push_back(note);
  return json;
}

Result<int> run(const ExportArguments& arguments, const CommandContext& context) {
  InterruptGuard guard;
  STAGECOACH_ASSIGN_OR_RETURN(ExportOptions options, parse(arguments));
  Progress progress;
  progress.phase("checking and writing weights");
  options.progress = [&progress](int64_t done, int64_t total) {
    progress.update(
        fmt::format("writing weights: {} % of {} parameters", done * 100 / total, total));
  };
  Result<ExportReport> report = export_checkpoint(options);
  if (report.status().code() == StatusCode::kCancelled) return kExitInterrupted;
  if (!report.is_ok()) return report.status();
  for (const std::string& note : report->notes) log_warning(note);
  if (context.json) {
    fmt::print("{}\n", to_json(*report, arguments.out).dump());
    return kExitOk;
  }
  fmt::print("{}: {} of weights as {}, of iteration {}\n", arguments.out,
             format_bytes(report->weight_bytes), report->dtype, report->iteration);
  for (const std::string& file : report->files) fmt::print("  {}\n", file);
  return kExitOk;
}

}  // namespace

Command make_export_command() {
  auto arguments = std::make_shared<ExportArguments>();
  Command command;
  command.name = "export";
  command.summary = "writes a checkpoint as a Hugging Face folder, adapters as PEFT's";
  command.examples = {"stagecoach export --checkpoint out/checkpoint --out model",
                      "stagecoach export --checkpoint out --out model --dtype bf16 --json"};
  command.notes =
      "config.json, names, tokenizer files and generation_config.json are those of the model that\n"
      "was trained, where it is still there. The folder appears when all of it is written.";
  command.options = {
      {"--checkpoint", "DIR", "a checkpoint, or a run's folder: its newest", &arguments->checkpoint,
       true},
      {"--out", "DIR", "folder to make; may exist if it is empty", &arguments->out, true},
      {"--dtype", "D",
       "bf16, fp16 or fp32 (default: each tensor as the trained model had it, else fp32)",
       &arguments->dtype},
      {"--max-shard-size", "SIZE", "of one file of weights (default: 5 GB)",
       &arguments->max_shard_size},
      {"--merge-lora", "", "write the base with the adapters merged into its weights",
       &arguments->merge_lora}};
  command.run = [arguments](const CommandContext& context) { return run(*arguments, context); };
  return command;
}

}  // namespace stagecoach
