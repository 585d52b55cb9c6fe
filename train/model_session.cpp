#include "train/model_session.h"

#include <fmt/format.h>

#include "core/log.h"
#include "core/settings.h"
#include "hal/device_spec.h"
#include "model/mapped_weights.h"
#include "model/peft_adapter.h"
#include "model/weight_transfer.h"
#include "train/checkpoint.h"
#include "train/data.h"
#include "train/measured_machine.h"

namespace stagecoach {

namespace {

/// The text of a device list in which every element without a memory limit has `memory`.
Result<std::string> with_memory(const std::string& use, const std::string& memory) {
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<DeviceSpec> specs, parse_device_specs(use));
  std::string text;
  for (const DeviceSpec& spec : specs) {
    text += text.empty() ? "" : ",";
    if (spec.options.contains("memory")) {
      text += spec.text;
    } else if (spec.text.ends_with(']')) {
      text += fmt::format("{},memory={}]", spec.text.substr(0, spec.text.size() - 1), memory);
    } else {
      text += fmt::format("{}[memory={}]", spec.text, memory);
    }
  }
  return text;
}

TrainerOptions trainer_options(const TrainConfig& config) {
  TrainerOptions options;
  options.schedule = config.schedule.kind;
  options.dispatch = config.schedule.dispatch;
  options.residency = config.devices.residency;
  options.activations = config.activations.policy;
  options.update = config.schedule.update;
  options.batch = config.train.batch;
  options.sequence = config.data.sequence;
  options.micro_batches = config.train.micro_batches;
  options.rounds = config.train.rounds;
  options.max_stage_layers = config.schedule.max_stage_layers;
  options.seed = config.train.seed;
  options.optimizer = config.optimizer.kind;
  options.moments = config.optimizer.moments;
  options.momentum = config.optimizer.momentum;
  options.beta1 = config.optimizer.beta1;
  options.beta2 = config.optimizer.beta2;
  options.epsilon = config.optimizer.eps;
  options.weight_decay = config.optimizer.weight_decay;
  if (config.train.loss_scale > 0) options.loss_scale = config.train.loss_scale;
  options.clip_norm = config.optimizer.clip_norm;
  options.z_loss = config.train.z_loss;
  options.label_smoothing = config.train.label_smoothing;
  options.device_share = config.optimizer.device_share;
  options.timeout_ns = config.devices.timeout_ns;
  options.trace = config.output.trace;
  options.save_copy_bytes = config.output.save_copy;
  return options;
}

}  // namespace

namespace {

/// Learned positions end; those that heads turn by go on, where the model was not trained.
Status check_sequence(const ModelSource& source, int64_t sequence) {
  Architecture shape = source.architecture();
  if (sequence <= shape.positions) return Status::ok();
  std::string what = fmt::format("data.sequence = {} is longer than the {} positions of model '{}'",
                                 sequence, shape.positions, source.name);
  if (shape.family != ModelFamily::kGpt2) {
    log_warning(what + ": its positions go on, but it may not have been trained there");
    return Status::ok();
  }
  return invalid_argument(fmt::format("{}; set data.sequence = {} or less", what, shape.positions));
}

}  // namespace

namespace {

/// Settles which adapters there are.
Status choose_adapters(const ModelConfig& model, ModelSource& source) {
  bool is_asked = model.lora.is_on() || !model.lora_path.empty();
  if (is_asked && source.lora.is_on()) {
    return invalid_argument(fmt::format(
        "model.path = \"{}\" is an adapter's folder, which goes on with its own settings; leave "
        "model.lora out, or name the base, \"{}\"",
        model.path, source.base_path));
  }
  if (!model.lora_path.empty()) STAGECOACH_RETURN_IF_ERROR(add_adapter(model.lora_path, source));
  if (model.lora.is_on()) {
    source.lora = model.lora;
    source.base_path = source.weights_folder;
  }
  if (model.base == "memory" || source.lora.is_on()) return Status::ok();
  return invalid_argument(
      fmt::format("model.base = \"{}\" without model.lora: weights that are trained cannot stay in "
                  "their files; "
                  "leave model.base out, or set model.lora",
                  model.base));
}

}  // namespace

Result<ModelSource> resolve_model_for(const ModelConfig& model, int64_t sequence) {
  STAGECOACH_ASSIGN_OR_RETURN(ModelSource source, resolve_model(model.path));
  bool has_adapters = model.lora.is_on() || !model.lora_path.empty();
  if (model.init == "weights") {
    STAGECOACH_RETURN_IF_ERROR(check_has_weights(source, has_adapters));
  }
  STAGECOACH_RETURN_IF_ERROR(choose_adapters(model, source));
  if (!source.adapter_folder.empty()) {
    STAGECOACH_RETURN_IF_ERROR(check_base_of_adapters(source.adapter_folder, source));
  }
  for (const std::string& note : source.notes) log_warning(note);
  for (const std::string& field : source.defaulted) {
    log_info(fmt::format("{}: not in config.json, default taken: {}", source.name, field));
  }
  for (const std::string& field : source.ignored) {
    log_info(fmt::format("{}: field of config.json without meaning here: {}", source.name, field));
  }
  if (const auto* decoder = std::get_if<DecoderConfig>(&source.model)) {
    log_info(
        fmt::format("{}: rotary positions of {}", source.name, describe_rotary(decoder->rotary)));
  }
  STAGECOACH_RETURN_IF_ERROR(check_sequence(source, sequence));
  return source;
}

Status settle_router_loss(RunConfig& train, ModelSource& source) {
  auto* decoder = std::get_if<DecoderConfig>(&source.model);
  bool has_experts = decoder != nullptr && decoder->architecture.has_experts();
  bool is_auto = train.router_loss == kAutoRouterLoss;
  if (!is_auto && train.router_loss > 0 && !has_experts) {
    return invalid_argument(
        fmt::format("train.router_loss = {}, but model '{}' has no experts to balance; expected "
                    "\"auto\" or 0: leave it out",
                    train.router_loss, source.name));
  }
  if (is_auto) train.router_loss = has_experts ? decoder->router_loss : 0;
  if (!has_experts) return Status::ok();
  decoder->router_loss = train.router_loss;
  if (train.router_loss > 0) {
    log_info(fmt::format("{}: loss + {} x load-balancing loss of its experts, as {} says",
                         source.name, train.router_loss,
                         is_auto ? "router_aux_loss_coef in config.json" : "train.router_loss"));
  }
  std::string warning = training_warning(*decoder);
  if (!warning.empty()) log_warning(fmt::format("{}: {}", source.name, warning));
  return Status::ok();
}

Result<std::vector<std::unique_ptr<Device>>> open_configured_devices(
    const BackendRegistry& backends, const TrainConfig& config) {
  const DevicesConfig& devices = config.devices;
  std::string use = devices.use;
  if (devices.memory != "auto") {
    STAGECOACH_ASSIGN_OR_RETURN(use, with_memory(devices.use, devices.memory));
  }
  return backends.open_devices(use, {.is_deterministic = config.train.deterministic == "true"});
}

namespace {

/// Takes over what the machine profile at `path` (empty: none) holds, and says what is assumed.
Status use_profile(const std::string& path, const std::vector<std::unique_ptr<Device>>& devices,
                   TrainerOptions& options) {
  std::vector<DeviceInfo> infos;
  for (const std::unique_ptr<Device>& device : devices) infos.push_back(device->info());
  STAGECOACH_ASSIGN_OR_RETURN(MeasuredMachine machine, read_measured_machine(path, infos));
  for (const std::string& line : machine.warnings) log_warning("devices.profile = " + line);
  for (const std::string& line : machine.taken) log_info("by devices.profile: " + line);
  for (const std::string& line : machine.assumed) log_info("assumed: " + line);
  STAGECOACH_ASSIGN_OR_RETURN(Settings settings, read_settings());
  if (settings.threads <= 0) options.host_threads = machine.host_threads;
  options.measured = std::move(machine.devices);
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<Trainer>> make_trainer(const ModelSource& source, NetworkHead head,
                                              const TrainConfig& config,
                                              const std::vector<std::unique_ptr<Device>>& devices,
                                              PinWatch pin_watch) {
  bool has_documents = packing_of(config.data.packing) == Packing::kDocuments;
  Result<Network> made = make_network(source.model, head, config.model.dtype, config.data.sequence,
                                      source.lora, has_documents);
  if (!made.is_ok()) return made.status().with_context(source.name);
  Network network = std::move(made).value();
  if (config.model.init == "weights" && !source.weights_folder.empty()) {
    STAGECOACH_RETURN_IF_ERROR(check_weights(source.weights_folder, network));
  }
  if (!source.adapter_folder.empty()) {
    STAGECOACH_RETURN_IF_ERROR(check_adapters(source.adapter_folder, network));
  }
  if (config.model.base == "mapped") {
    map_frozen_blocks(network);
    STAGECOACH_RETURN_IF_FAILED(MappedWeights::open(source.weights_folder, network));
  }
  std::vector<Device*> used;
  for (const std::unique_ptr<Device>& device : devices) used.push_back(device.get());
  TrainerOptions options = trainer_options(config);
  options.pin_watch = std::move(pin_watch);
  STAGECOACH_RETURN_IF_ERROR(use_profile(config.devices.profile, devices, options));
  STAGECOACH_ASSIGN_OR_RETURN(
      std::unique_ptr<Trainer> trainer,
      Trainer::create(std::move(network), std::move(used), std::move(options)));
  if (config.optimizer.moments != "fp32") {
    log_info(fmt::format("optimizer.moments = \"{}\": {}", config.optimizer.moments,
                         kMomentsChangeNumerics));
  }
  bool chosen = config.activations.policy == "auto" && binds_stages(config.schedule.kind);
  if (chosen && trainer->report().activations == "recompute") {
    log_info(
        "activations.policy = \"auto\": keeping activations does not fit the devices, so backward "
        "recomputes them");
  }
  return trainer;
}

Status fill_parameters(const ModelSource& source, const ModelConfig& model, Trainer& trainer,
                       Progress& progress) {
  if (model.init == "random") {
    trainer.initialize_parameters();
    return Status::ok();
  }
  STAGECOACH_RETURN_IF_ERROR(fill_base(source, model, trainer, progress));
  if (source.adapter_folder.empty()) {
    trainer.initialize_adapters();
    return Status::ok();
  }
  auto write = [&trainer](int block, int64_t offset, std::span<const float> values) {
    return trainer.write_parameters(block, offset, values);
  };
  return load_adapters(source.adapter_folder, trainer.network(), write);
}

Status fill_base(const ModelSource& source, const ModelConfig& model, Trainer& trainer,
                 Progress& progress) {
  if (model.base == "mapped") {
    STAGECOACH_ASSIGN_OR_RETURN(std::shared_ptr<const MappedWeights> base,
                                MappedWeights::open(source.weights_folder, trainer.network()));
    progress.line(fmt::format("mapped {} of weights from {}", format_bytes(base->bytes()),
                              source.weights_folder));
    return trainer.map_base(std::move(base));
  }
  auto write = [&trainer](int block, int64_t offset, std::span<const float> values) {
    return trainer.write_parameters(block, offset, values);
  };
  auto show = [&progress](ByteCount read_bytes, ByteCount total_bytes) {
    progress.update(fmt::format("reading weights: {} of {}", format_bytes(read_bytes),
                                format_bytes(total_bytes)));
  };
  STAGECOACH_ASSIGN_OR_RETURN(LoadedWeights loaded,
                              load_weights(source.weights_folder, trainer.network(), write, show));
  progress.line(fmt::format("read {} of weights from {} in {:.2f} s, {:.2f} GB/s",
                            format_bytes(loaded.bytes), source.weights_folder, loaded.seconds,
                            static_cast<double>(loaded.bytes) / loaded.seconds * 1e-9));
  return Status::ok();
}

Result<ModelSession> open_model_session(const BackendRegistry& backends, const TrainConfig& config,
                                        NetworkHead head, Progress& progress) {
  ModelSession session;
  STAGECOACH_ASSIGN_OR_RETURN(session.source,
                              resolve_model_for(config.model, config.data.sequence));
  // Nothing is trained.
  RunConfig run = config.train;
  run.router_loss = 0;
  STAGECOACH_RETURN_IF_ERROR(settle_router_loss(run, session.source));
  STAGECOACH_ASSIGN_OR_RETURN(session.devices, open_configured_devices(backends, config));
  STAGECOACH_ASSIGN_OR_RETURN(session.trainer,
                              make_trainer(session.source, head, config, session.devices));
  STAGECOACH_RETURN_IF_ERROR(
      fill_parameters(session.source, config.model, *session.trainer, progress));
  return session;
}

}  // namespace stagecoach
