#include "train/config_fields.h"

#include <array>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <utility>

#include "core/suggest.h"
#include "hal/device_spec.h"
#include "model/decoder_config.h"
#include "scheduler/schedules/schedule.h"
#include "train/trainer.h"

namespace stagecoach::internal {

std::string shown(const Json& value) {
  if (value.is_array()) {
    std::vector<std::string> items;
    for (const Json& item : value.items()) items.push_back(shown(item));
    return fmt::format("[{}]", fmt::join(items, ", "));
  }
  bool is_none = value.is_number() && !std::isfinite(value.as_number());
  return is_none ? fmt::format("{}", value.as_number()) : value.dump();
}

namespace {

/// Below it, sqrt(0) + eps is no normal fp32 number and the update of an unused parameter is 0 / 0.
constexpr double kLeastEpsilon = 1e-30;
constexpr double kMostLossScale = 0x1p100;
constexpr int64_t kMaxCount = int64_t{1} << 31;
constexpr int64_t kMaxBatch = 1 << 20;
constexpr int64_t kMaxSequence = 1 << 24;
constexpr int64_t kMaxSeed = std::numeric_limits<int64_t>::max();

template <typename T>
using Access = std::function<T&(TrainConfig&)>;

/// A copy of what `access` names: it works on a configuration that may change.
template <typename T>
T get(const Access<T>& access, const TrainConfig& config) {
  TrainConfig copy = config;
  return access(copy);
}

Status not_allowed(const std::string& allowed, const std::string& key, const std::string& example) {
  return invalid_argument(
      fmt::format(" is not allowed; allowed: {}; for example {} = {}", allowed, key, example));
}

template <typename T>
ConfigField integer_field(std::string key, Access<T> access, int64_t least, int64_t most) {
  auto read = [key, access, least, most](const Json& value, TrainConfig& config) -> Status {
    if (!value.is_integer() || value.as_integer() < least || value.as_integer() > most) {
      TrainConfig defaults;
      return not_allowed(fmt::format("a whole number from {} to {}", least, most), key,
                         std::to_string(access(defaults)));
    }
    access(config) = static_cast<T>(value.as_integer());
    return Status::ok();
  };
  auto show = [access](const TrainConfig& config) {
    return Json(static_cast<int64_t>(get(access, config)));
  };
  return {key, false, read, show};
}

/// Bounds of a number; the upper one may be excluded, the lower one too.
struct NumberRange {
  double least = 0;
  double most = 0;
  bool least_excluded = false;
  bool most_excluded = false;

  bool contains(double value) const {
    bool above = least_excluded ? value > least : value >= least;
    bool below = most_excluded ? value < most : value <= most;
    return above && below;
  }
  std::string describe() const {
    return fmt::format("a number {} {} and {} {}", least_excluded ? "above" : "from", least,
                       most_excluded ? "below" : "up to", most);
  }
};

ConfigField number_field(std::string key, Access<double> access, NumberRange range) {
  auto read = [key, access, range](const Json& value, TrainConfig& config) -> Status {
    if (!value.is_number() || !range.contains(value.as_number())) {
      TrainConfig defaults;
      return not_allowed(range.describe(), key, Json(access(defaults)).dump());
    }
    access(config) = value.as_number();
    return Status::ok();
  };
  auto show = [access](const TrainConfig& config) { return Json(get(access, config)); };
  return {key, false, read, show};
}

ConfigField text_field(std::string key, Access<std::string> access, std::string example) {
  auto read = [key, access, example](const Json& value, TrainConfig& config) -> Status {
    if (!value.is_string() || value.as_string().empty()) {
      return not_allowed("text that is not empty", key, Json(example).dump());
    }
    access(config) = value.as_string();
    return Status::ok();
  };
  auto show = [access](const TrainConfig& config) {
    std::string text = get(access, config);
    return text.empty() ? Json() : Json(text);
  };
  return {key, true, read, show};
}

/// Words a key may hold, and words it will hold in other versions or other commands.
struct Choices {
  std::vector<std::string> allowed;
  std::vector<std::string> not_yet;
  std::vector<std::string> simulate_only;
};

std::string quoted(const std::vector<std::string>& words) {
  std::vector<std::string> parts;
  for (const std::string& word : words) parts.push_back('"' + word + '"');
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool holds(const std::vector<std::string>& words, const std::string& word) {
  for (const std::string& candidate : words) {
    if (candidate == word) return true;
  }
  return false;
}

Status check_choice(const std::string& key, const Json& value, const Choices& choices) {
  std::string tail = fmt::format("allowed: {}; set {} = \"{}\"", quoted(choices.allowed), key,
                                 choices.allowed.front());
  if (!value.is_string()) return invalid_argument(" is not text; " + tail);
  const std::string& word = value.as_string();
  if (holds(choices.allowed, word)) return Status::ok();
  if (holds(choices.not_yet, word)) {
    return unimplemented(": this version does not have it yet; " + tail);
  }
  if (holds(choices.simulate_only, word)) {
    return invalid_argument(": simulate only, it does not train; " + tail);
  }
  std::vector<std::string> known = choices.allowed;
  known.insert(known.end(), choices.not_yet.begin(), choices.not_yet.end());
  known.insert(known.end(), choices.simulate_only.begin(), choices.simulate_only.end());
  std::string nearest = nearest_name(word, known);
  return invalid_argument(
      fmt::format(" is not known{}; {}",
                  nearest.empty() ? "" : fmt::format(", did you mean \"{}\"?", nearest), tail));
}

ConfigField choice_field(std::string key, Access<std::string> access, Choices choices) {
  auto read = [key, access, choices](const Json& value, TrainConfig& config) -> Status {
    STAGECOACH_RETURN_IF_ERROR(check_choice(key, value, choices));
    access(config) = value.as_string();
    return Status::ok();
  };
  auto show = [access](const TrainConfig& config) { return Json(get(access, config)); };
  return {key, true, read, show};
}

/// A key of the contract that belongs to something this version lacks.
ConfigField reserved_field(std::string key, std::string belongs_to) {
  auto read = [key, belongs_to](const Json& value, TrainConfig&) {
    return unimplemented(fmt::format(
        ": {} needs {}, and this version does not have it yet; remove the key", key, belongs_to));
  };
  return {key, true, read, [](const TrainConfig&) { return Json(); }};
}

ConfigField files_field(std::string key, Access<std::vector<std::string>> access) {
  auto read = [key, access](const Json& value, TrainConfig& config) -> Status {
    std::vector<std::string> files;
    if (value.is_string()) {
      files.push_back(value.as_string());
    } else if (value.is_array()) {
      for (const Json& item : value.items()) {
        if (!item.is_string()) {
          return not_allowed("a list of file names", key, "[\"text.txt\"]");
        }
        files.push_back(item.as_string());
      }
    } else {
      return not_allowed("a list of file names", key, "[\"text.txt\"]");
    }
    for (const std::string& file : files) {
      if (file.empty()) return invalid_argument(" names a file without a name; leave it out");
    }
    access(config) = std::move(files);
    return Status::ok();
  };
  auto show = [access](const TrainConfig& config) {
    Json list = Json::array();
    for (const std::string& file : get(access, config)) list.push_back(file);
    return list;
  };
  return {key, true, read, show};
}

ConfigField dtype_field() {
  auto read = [](const Json& value, TrainConfig& config) -> Status {
    STAGECOACH_RETURN_IF_ERROR(
        check_choice("model.dtype", value, {{"fp32", "bf16", "fp16"}, {}, {}}));
    STAGECOACH_ASSIGN_OR_RETURN(config.model.dtype, parse_compute_dtype(value.as_string()));
    return Status::ok();
  };
  auto show = [](const TrainConfig& config) { return Json(dtype_name(config.model.dtype)); };
  return {"model.dtype", true, read, show};
}

constexpr std::string_view kLoraExample = "{rank = 16, alpha = 32, targets = \"all-linear\"}";

Status read_lora_targets(const Json& value, std::vector<std::string>& targets) {
  targets.clear();
  std::vector<Json> items = value.is_array() ? value.items() : std::vector<Json>{value};
  for (const Json& item : items) {
    if (!item.is_string() || item.as_string().empty()) break;
    targets.push_back(item.as_string());
  }
  if (!items.empty() && targets.size() == items.size()) {
    std::sort(targets.begin(), targets.end());
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
    bool has_all = holds(targets, std::string(kAllLinear));
    if (!has_all || targets.size() == 1) return Status::ok();
  }
  return not_allowed("\"all-linear\" or a list of names of modules", "model.lora.targets",
                     "[\"q_proj\", \"v_proj\"]");
}

const std::vector<std::string> kLoraKeys = {"rank", "alpha", "targets", "rslora", "path"};

/// One key of model.lora, a known one.
Status read_lora_key(const std::string& key, const Json& value, ModelConfig& model) {
  if (key == "rank") {
    bool good =
        value.is_integer() && value.as_integer() >= 1 && value.as_integer() <= kMostLoraRank;
    if (!good) {
      return not_allowed(fmt::format("a whole number from 1 to {}", kMostLoraRank),
                         "model.lora.rank", "16");
    }
    model.lora.rank = value.as_integer();
  } else if (key == "alpha") {
    NumberRange range{0, 1e6, true};
    if (!value.is_number() || !range.contains(value.as_number())) {
      return not_allowed(range.describe(), "model.lora.alpha", "32");
    }
    model.lora.alpha = value.as_number();
  } else if (key == "targets") {
    return read_lora_targets(value, model.lora.targets);
  } else if (key == "rslora") {
    if (!value.is_bool()) return not_allowed("true or false", "model.lora.rslora", "true");
    model.lora.uses_rslora = value.as_bool();
  } else {
    if (!value.is_string() || value.as_string().empty()) {
      return not_allowed("an adapter's folder", "model.lora.path", "\"adapter\"");
    }
    model.lora_path = value.as_string();
  }
  return Status::ok();
}

ConfigField lora_field() {
  auto read = [](const Json& value, TrainConfig& config) -> Status {
    if (!value.is_object()) {
      return not_allowed("a table", "model.lora", std::string(kLoraExample));
    }
    config.model.names_lora = true;
    for (const auto& [key, member] : value.members()) {
      if (!holds(kLoraKeys, key)) {
        std::string nearest = nearest_name(key, kLoraKeys);
        return invalid_argument(
            fmt::format("unknown key 'model.lora.{}'{}; model.lora knows {}", key,
                        nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest),
                        fmt::join(kLoraKeys, ", ")));
      }
      Status status = read_lora_key(key, member, config.model);
      if (status.is_ok()) continue;
      return Status(status.code(),
                    fmt::format("model.lora.{} = {}{}", key, shown(member), status.message()));
    }
    return Status::ok();
  };
  auto show = [](const TrainConfig& config) {
    const LoraOptions& lora = config.model.lora;
    Json json = Json::object();
    if (!config.model.lora_path.empty()) json["path"] = config.model.lora_path;
    if (!lora.is_on()) return json.members().empty() ? Json() : json;
    json["rank"] = lora.rank;
    json["alpha"] = lora.alpha;
    json["targets"] = Json::array();
    for (const std::string& target : lora.targets) json["targets"].push_back(target);
    if (lora.uses_rslora) json["rslora"] = true;
    return json;
  };
  return {"model.lora", true, read, show, true};
}

/// A number that may be written with K, M and G.
ConfigField size_field(std::string key, Access<ByteCount> access, ByteCount least,
                       std::string example) {
  auto read = [key, access, least, example](const Json& value, TrainConfig& config) -> Status {
    Result<ByteCount> size = invalid_argument("neither");
    if (value.is_string()) size = parse_bytes(value.as_string());
    if (value.is_integer()) size = ByteCount{value.as_integer()};
    if (!size.is_ok() || *size < least) {
      return not_allowed(fmt::format("a number of {} or more, K, M and G allowed", least), key,
                         Json(example).dump());
    }
    access(config) = *size;
    return Status::ok();
  };
  auto show = [access](const TrainConfig& config) { return Json(int64_t{get(access, config)}); };
  return {key, true, read, show};
}

ConfigField deterministic_field() {
  auto read = [](const Json& value, TrainConfig& config) -> Status {
    if (value.is_bool()) {
      config.train.deterministic = value.as_bool() ? "true" : "false";
      return Status::ok();
    }
    bool known = value.is_string() && (value.as_string() == "auto" || value.as_string() == "true" ||
                                       value.as_string() == "false");
    if (!known) return not_allowed("\"auto\", true or false", "train.deterministic", "\"auto\"");
    config.train.deterministic = value.as_string();
    return Status::ok();
  };
  auto show = [](const TrainConfig& config) {
    if (config.train.deterministic == "auto") return Json("auto");
    return Json(config.train.deterministic == "true");
  };
  return {"train.deterministic", true, read, show};
}

ConfigField loss_scale_field() {
  auto read = [](const Json& value, TrainConfig& config) -> Status {
    if (value.is_string() && value.as_string() == "auto") {
      config.train.loss_scale = 0;
      return Status::ok();
    }
    NumberRange range{kLeastLossScale, kMostLossScale};
    if (!value.is_number() || !range.contains(value.as_number())) {
      return not_allowed("\"auto\" or " + range.describe(), "train.loss_scale", "\"auto\"");
    }
    config.train.loss_scale = value.as_number();
    return Status::ok();
  };
  auto show = [](const TrainConfig& config) {
    return config.train.loss_scale > 0 ? Json(config.train.loss_scale) : Json("auto");
  };
  return {"train.loss_scale", true, read, show};
}

ConfigField router_loss_field() {
  auto read = [](const Json& value, TrainConfig& config) -> Status {
    if (value.is_string() && value.as_string() == "auto") {
      config.train.router_loss = kAutoRouterLoss;
      return Status::ok();
    }
    NumberRange range{0, kMostRouterLoss};
    if (!value.is_number() || !range.contains(value.as_number())) {
      return not_allowed("\"auto\" or " + range.describe(), "train.router_loss", "\"auto\"");
    }
    config.train.router_loss = value.as_number();
    return Status::ok();
  };
  auto show = [](const TrainConfig& config) {
    double router_loss = config.train.router_loss;
    return router_loss == kAutoRouterLoss ? Json("auto") : Json(router_loss);
  };
  return {"train.router_loss", true, read, show};
}

ConfigField device_share_field() {
  auto read = [](const Json& value, TrainConfig& config) -> Status {
    if (value.is_string() && value.as_string() == "auto") {
      config.optimizer.device_share = kAutoShare;
      return Status::ok();
    }
    NumberRange range{0, 1};
    if (!value.is_number() || !range.contains(value.as_number())) {
      return not_allowed("\"auto\" or " + range.describe(), "optimizer.device_share", "\"auto\"");
    }
    config.optimizer.device_share = value.as_number();
    return Status::ok();
  };
  auto show = [](const TrainConfig& config) {
    double share = config.optimizer.device_share;
    return share == kAutoShare ? Json("auto") : Json(share);
  };
  return {"optimizer.device_share", true, read, show};
}

ConfigField betas_field() {
  auto read = [](const Json& value, TrainConfig& config) -> Status {
    NumberRange range{0.0, 1.0, false, true};
    bool good = value.is_array() && value.items().size() == 2;
    for (size_t i = 0; good && i < 2; ++i) {
      const Json& item = value.items()[i];
      good = item.is_number() && range.contains(item.as_number());
    }
    if (!good) {
      return not_allowed("two numbers, each " + range.describe().substr(2), "optimizer.betas",
                         "[0.9, 0.95]");
    }
    config.optimizer.beta1 = value.items()[0].as_number();
    config.optimizer.beta2 = value.items()[1].as_number();
    return Status::ok();
  };
  auto show = [](const TrainConfig& config) {
    return Json(Json::Array{Json(config.optimizer.beta1), Json(config.optimizer.beta2)});
  };
  return {"optimizer.betas", false, read, show};
}

ConfigField device_string_field() {
  auto read = [](const Json& value, TrainConfig& config) -> Status {
    if (!value.is_string()) return not_allowed("a device string", "devices.use", "\"cpu:4\"");
    if (Result<std::vector<DeviceSpec>> specs = parse_device_specs(value.as_string());
        !specs.is_ok()) {
      return invalid_argument(": " + specs.status().message());
    }
    config.devices.use = value.as_string();
    return Status::ok();
  };
  auto show = [](const TrainConfig& config) { return Json(config.devices.use); };
  return {"devices.use", true, read, show};
}

ConfigField device_memory_field() {
  auto read = [](const Json& value, TrainConfig& config) -> Status {
    std::string text = value.is_integer()  ? std::to_string(value.as_integer())
                       : value.is_string() ? value.as_string()
                                           : std::string();
    if (text != "auto") {
      Result<ByteCount> size = parse_bytes(text);
      if (!size.is_ok() || *size < 1) {
        return not_allowed("\"auto\" or a size for each device", "devices.memory", "\"24G\"");
      }
    }
    config.devices.memory = text;
    return Status::ok();
  };
  auto show = [](const TrainConfig& config) { return Json(config.devices.memory); };
  return {"devices.memory", true, read, show};
}

ConfigField timeout_field() {
  auto read = [](const Json& value, TrainConfig& config) -> Status {
    Result<int64_t> duration = invalid_argument("not text");
    if (value.is_string()) duration = parse_duration_ns(value.as_string());
    if (!duration.is_ok() || *duration < 1) {
      return not_allowed("a time above zero with ns, us, ms or s", "devices.timeout", "\"60s\"");
    }
    config.devices.timeout_ns = *duration;
    return Status::ok();
  };
  auto show = [](const TrainConfig& config) {
    return Json(format_duration(config.devices.timeout_ns));
  };
  return {"devices.timeout", true, read, show};
}

ConfigField trace_field() {
  auto read = [](const Json& value, TrainConfig& config) -> Status {
    if (!value.is_bool()) return not_allowed("true or false", "output.trace", "true");
    config.output.trace = value.as_bool();
    return Status::ok();
  };
  auto show = [](const TrainConfig& config) { return Json(config.output.trace); };
  return {"output.trace", false, read, show};
}

// Shortens the table below: where a value lives in a TrainConfig.
#define AT(member)                    \
  [](TrainConfig & config) -> auto& { \
    return config.member;             \
  }

void add_model_and_data(std::vector<ConfigField>& fields) {
  fields.push_back(text_field("model.path", AT(model.path), "gpt2"));
  fields.push_back(choice_field("model.init", AT(model.init), {{"weights", "random"}, {}, {}}));
  fields.push_back(dtype_field());
  fields.push_back(lora_field());
  fields.push_back(choice_field("model.base", AT(model.base), {{"memory", "mapped"}, {}, {}}));
  fields.push_back(files_field("data.train", AT(data.train)));
  fields.push_back(files_field("data.validation", AT(data.validation)));
  fields.push_back(integer_field<int64_t>("data.sequence", AT(data.sequence), 1, kMaxSequence));
  fields.push_back(text_field("data.tokenizer", AT(data.tokenizer), "bytes"));
  fields.push_back(choice_field("data.packing", AT(data.packing),
                                {{"auto", "stream", "pad", "documents"}, {}, {}}));
  fields.push_back(integer_field<uint64_t>("data.seed", AT(data.seed), 0, kMaxSeed));
}

void add_run(std::vector<ConfigField>& fields) {
  fields.push_back(integer_field<int64_t>("train.iterations", AT(train.iterations), 1, kMaxCount));
  fields.push_back(integer_field<int64_t>("train.epochs", AT(train.epochs), 0, kMaxCount));
  fields.push_back(integer_field<int64_t>("train.batch", AT(train.batch), 1, kMaxBatch));
  fields.push_back(
      integer_field<int64_t>("train.microbatches", AT(train.micro_batches), 1, kMaxBatch));
  fields.push_back(integer_field<int64_t>("train.rounds", AT(train.rounds), 1, kMaxBatch));
  fields.push_back(integer_field<uint64_t>("train.seed", AT(train.seed), 0, kMaxSeed));
  fields.push_back(integer_field<int64_t>("train.eval_every", AT(train.eval_every), 0, kMaxCount));
  fields.push_back(size_field("train.eval_tokens", AT(train.eval_tokens), 1, "1M"));
  fields.push_back(integer_field<int64_t>("train.log_every", AT(train.log_every), 1, kMaxCount));
  fields.push_back(deterministic_field());
  fields.push_back(loss_scale_field());
  fields.push_back(number_field("train.z_loss", AT(train.z_loss), {0, kMostZLoss}));
  fields.push_back(
      number_field("train.label_smoothing", AT(train.label_smoothing), {0, 1, false, true}));
  fields.push_back(router_loss_field());
}

void add_optimizer(std::vector<ConfigField>& fields) {
  const std::vector<std::string_view>& kinds = optimizer_kinds();
  fields.push_back(
      choice_field("optimizer.kind", AT(optimizer.kind), {{kinds.begin(), kinds.end()}, {}, {}}));
  fields.push_back(number_field("optimizer.lr", AT(optimizer.lr), {0, 1e3, true}));
  fields.push_back(betas_field());
  fields.push_back(
      choice_field("optimizer.moments", AT(optimizer.moments), {{"fp32", "bf16", "8bit"}, {}, {}}));
  fields.push_back(number_field("optimizer.momentum", AT(optimizer.momentum), {0, 1, false, true}));
  fields.push_back(number_field("optimizer.eps", AT(optimizer.eps), {kLeastEpsilon, 1}));
  fields.push_back(number_field("optimizer.weight_decay", AT(optimizer.weight_decay), {0, 1e3}));
  fields.push_back(
      choice_field("optimizer.no_decay", AT(optimizer.no_decay), {{"norms and biases"}, {}, {}}));
  fields.push_back(
      number_field("optimizer.clip_norm", AT(optimizer.clip_norm), {0, kMostClipNorm}));
  fields.push_back(device_share_field());
  fields.push_back(integer_field<int64_t>("optimizer.warmup", AT(optimizer.warmup), 0, kMaxCount));
  fields.push_back(choice_field("optimizer.decay", AT(optimizer.decay),
                                {{"cosine", "linear", "constant"}, {}, {}}));
  fields.push_back(number_field("optimizer.min_lr", AT(optimizer.min_lr), {0, 1}));
}

void add_schedule(std::vector<ConfigField>& fields) {
  Choices kinds;
  kinds.allowed.assign(trained_schedules().begin(), trained_schedules().end());
  for (const Schedule& schedule : all_schedules()) {
    std::string name(schedule.name);
    if (holds(kinds.allowed, name)) continue;
    (schedule.trains ? kinds.not_yet : kinds.simulate_only).push_back(name);
  }
  fields.push_back(choice_field("schedule.kind", AT(schedule.kind), kinds));
  fields.push_back(choice_field("schedule.update", AT(schedule.update),
                                {{"overlap", "async", "barrier"}, {}, {}}));
  fields.push_back(reserved_field("schedule.accumulation", "the paci schedule"));
  fields.push_back(reserved_field("schedule.slack", "the paci schedule"));
  fields.push_back(reserved_field("schedule.routes", "the slidedp schedule"));
  fields.push_back(
      choice_field("schedule.dispatch", AT(schedule.dispatch), {{"rotation", "static"}, {}, {}}));
  fields.push_back(integer_field<int64_t>("schedule.max_stage_layers",
                                          AT(schedule.max_stage_layers), 0, kMaxCount));
}

void add_devices_and_output(std::vector<ConfigField>& fields) {
  fields.push_back(device_string_field());
  fields.push_back(device_memory_field());
  fields.push_back(
      choice_field("devices.residency", AT(devices.residency), {{"auto", "off"}, {}, {}}));
  fields.push_back(timeout_field());
  fields.push_back(text_field("devices.profile", AT(devices.profile), "profile.json"));
  fields.push_back(choice_field("activations.policy", AT(activations.policy),
                                {{"auto", "recompute", "keep"}, {}, {}}));
  fields.push_back(text_field("output.dir", AT(output.dir), "out"));
  fields.push_back(
      integer_field<int64_t>("output.save_every", AT(output.save_every), 0, kMaxCount));
  fields.push_back(integer_field<int64_t>("output.keep_last", AT(output.keep_last), 1, kMaxCount));
  fields.push_back(size_field("output.save_copy", AT(output.save_copy), 0, "4G"));
  fields.push_back(trace_field());
  fields.push_back(text_field("output.resume", AT(output.resume), "auto"));
}

#undef AT

}  // namespace

const std::vector<ConfigField>& config_fields() {
  static const std::vector<ConfigField> fields = [] {
    std::vector<ConfigField> made;
    add_model_and_data(made);
    add_run(made);
    add_optimizer(made);
    add_schedule(made);
    add_devices_and_output(made);
    return made;
  }();
  return fields;
}

std::string format_duration(int64_t duration_ns) {
  constexpr std::array<std::pair<int64_t, const char*>, 3> kUnits = {
      {{1'000'000'000, "s"}, {1'000'000, "ms"}, {1'000, "us"}}};
  for (auto [unit_ns, suffix] : kUnits) {
    if (duration_ns % unit_ns == 0) return fmt::format("{}{}", duration_ns / unit_ns, suffix);
  }
  return fmt::format("{}ns", duration_ns);
}

}  // namespace stagecoach::internal
