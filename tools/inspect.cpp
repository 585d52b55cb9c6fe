#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <utility>

#include "core/printable.h"
#include "hal/device_spec.h"
#include "memory/activation_store.h"
#include "scheduler/network_state.h"
#include "scheduler/schedules/schedule.h"
#include "scheduler/stage_memory.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "tools/memory_table.h"
#include "tools/model_options.h"
#include "tools/rated_devices.h"
#include "train/device_updates.h"
#include "train/run_memory.h"
#include "train/trainer.h"

namespace stagecoach {

namespace {

struct InspectOptions {
  ModelOptions model;
  std::string devices, schedule = "roundpipe", device_share = "0", save_copy = "0";
};

Result<double> parse_device_share(const std::string& text) {
  if (text == "auto") return kAutoShare;
  double share = -1;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
  bool is_number = error == std::errc() && end == text.data() + text.size();
  if (is_number && share >= 0 && share <= 1) return share;
  return invalid_argument(
      fmt::format("--device-share is '{}'; it must be from 0 to 1, or auto", text));
}

Status check_options(InspectOptions& options) {
  const std::vector<std::string_view>& trained = trained_schedules();
  if (std::find(trained.begin(), trained.end(), options.schedule) == trained.end()) {
    return invalid_argument(fmt::format("--schedule is '{}'; this version trains by {}",
                                        options.schedule, fmt::join(trained, ", ")));
  }
  STAGECOACH_ASSIGN_OR_RETURN(options.model.device_share, parse_device_share(options.device_share));
  return check_model_options(options.model);
}

/// Sets aside on every device what updates there take.
Status reserve_updates(const Network& network, PlanRequest& request) {
  request.device_update_bytes = DeviceUpdates::bytes(network);
  for (size_t device = 0; device < request.devices.size(); ++device) {
    ByteCount& free = request.free_bytes[device];
    if (free < request.device_update_bytes) {
      return resource_exhausted(
          fmt::format("device {} has {} free; updates there take {}: leave out --device-share",
                      request.devices[device].id, format_bytes(free),
                      format_bytes(request.device_update_bytes)));
    }
    free -= request.device_update_bytes;
  }
  return Status::ok();
}

/// Adds the devices of a --devices string and what is free on them. Simulated ones have the memory
/// of their cards; all others are opened, which allocates nothing.
Status add_devices(const std::string& text, const BackendRegistry& backends, PlanRequest& request) {
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<DeviceSpec> specs, parse_device_specs(text));
  bool simulated = std::any_of(specs.begin(), specs.end(),
                               [](const DeviceSpec& spec) { return spec.backend == "sim"; });
  if (simulated) {
    STAGECOACH_ASSIGN_OR_RETURN(RatedDevices rated, rate_devices(text, backends));
    for (const PlannedDevice& device : rated.devices) {
      DeviceInfo info;
      info.id = device.name;
      info.backend = device.name.substr(0, device.name.find(':'));
      info.speed = device.speed;
      request.devices.push_back(std::move(info));
      request.free_bytes.push_back(device.memory_bytes > 0 ? device.memory_bytes : kUnlimitedBytes);
    }
    return Status::ok();
  }
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Device>> opened,
                              backends.open_devices(text));
  for (const std::unique_ptr<Device>& device : opened) {
    STAGECOACH_ASSIGN_OR_RETURN(MemoryUsage usage, device->memory_usage());
    request.devices.push_back(device->info());
    request.free_bytes.push_back(usage.total_bytes - usage.used_bytes);
  }
  return Status::ok();
}

/// Which parts of the trained state are moments and gradients.
void split_state(const Network& network, Residence residence, MemoryTable& table) {
  const PlanRequest& request = table.request;
  HostStateOptions without =
      state_options(network, request.rounds, residence, request.update, request.moments);
  without.moments.count = 0;
  table.moments =
      table.host.state.trained - host_state_bytes(state_layouts(network), without).trained;
  int rounds = request.rounds;
  DType gradient = rounds > 1 ? DType::kF32 : network.dtype;
  for (size_t index = 0; index < network.blocks.size(); ++index) {
    if (network.blocks[index].is_frozen) continue;
    auto block = static_cast<int>(index);
    table.gradients += Arena::padded(network.block_bytes(block, gradient));
  }
}

/// Plans as training does and adds up. What does not fit is said in `problem`; other errors are
/// returned.
Status fill_table(const InspectOptions& options, const Network& network, MemoryTable& table) {
  PlanRequest& request = table.request;
  auto layer_count = static_cast<int>(network.layers.size());
  std::vector<Stage> single = narrowest_stages(layer_count);
  Residence residence = binds_stages(options.schedule) ? Residence::kBound : Residence::kStreamed;
  table.least_device = device_memory_need(network, single, request.shape).total();
  table.host = host_need_before_planning(network, request, residence);
  // Until a plan says better: as many as there can be.
  table.host.boundaries = ActivationStore::bytes(home_boundaries(network, request.shape, single),
                                                 request.micro_batches);
  if (!request.devices.empty()) {
    auto plan = [&]() -> Result<PlannedRun> {
      if (residence == Residence::kStreamed) return plan_run(network, request);
      STAGECOACH_ASSIGN_OR_RETURN(const Schedule* schedule, find_schedule(options.schedule));
      return plan_bound_run(network, request, *schedule);
    };
    Result<PlannedRun> planned = plan();
    if (planned.is_ok() && !check_host_need(host_need(network, request, residence, *planned),
                                            table.limits, kModelAdvice)
                                .is_ok()) {
      request.residency = false;  // as training does
      planned = plan();
    }
    if (planned.is_ok()) {
      table.run = std::move(planned).value();
      table.host = host_need(network, request, residence, table.run);
    } else if (planned.status().code() == StatusCode::kResourceExhausted) {
      table.problem = planned.status().message();
    } else {
      return planned.status();
    }
  }
  split_state(network, residence, table);
  Status host = check_host_need(table.host, table.limits, kModelAdvice);
  if (host.is_ok()) return Status::ok();
  table.problem += (table.problem.empty() ? "" : "; ") + host.message();
  return Status::ok();
}

Result<int> run(InspectOptions& options, const CommandContext& context) {
  STAGECOACH_RETURN_IF_ERROR(check_options(options));
  STAGECOACH_ASSIGN_OR_RETURN(PlannedModel model, resolve_asked_model(options.model));
  const Network& network = model.network;
  MemoryTable table;
  STAGECOACH_ASSIGN_OR_RETURN(table.limits, host_limits_for(options.model));
  PlanRequest& request = table.request;
  if (!options.devices.empty()) {
    STAGECOACH_RETURN_IF_ERROR(add_devices(options.devices, context.backends, request));
  }
  // Of "auto" training decides when it has measured, and plans without updates there until then.
  if (options.model.device_share > 0) {
    STAGECOACH_RETURN_IF_ERROR(reserve_updates(network, request));
  }
  if (options.schedule == "single" && request.devices.size() > 1) {
    return invalid_argument(fmt::format("single has one device, not {}", request.devices.size()));
  }
  request.shape = options.model.shape(model.sequence);
  request.micro_batches = static_cast<int>(options.model.micro_batches);
  request.rounds = static_cast<int>(options.model.rounds);
  STAGECOACH_ASSIGN_OR_RETURN(request.update, parse_update_mode(options.model.update));
  request.gated = asked_to_wait_for_norm(options.model, network.dtype);
  request.moments = asked_moments(options.model);
  Result<ByteCount> save_copy = parse_bytes(options.save_copy);
  if (!save_copy.is_ok()) return save_copy.status().with_context("--save-copy");
  request.save_copy_bytes = *save_copy;
  STAGECOACH_RETURN_IF_ERROR(fill_table(options, network, table));
  if (context.json) {
    Json json = Json::object();
    json["model"] = options.model.model;
    json["architecture"] = architecture_to_json(model.architecture);
    json["parameters"] = network.parameter_count();
    json["trained_parameters"] = network.trained_parameter_count();
    json["dtype"] = dtype_name(network.dtype);
    json["sequence"] = model.sequence;
    json["bytes"] = bytes_to_json(table);
    json["fits"] = table.fits();
    json["problem"] = table.fits() ? Json() : Json(table.problem);
    json["notes"] = Json::array();
    for (const std::string& note : model.notes) json["notes"].push_back(note);
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("{}: {}{} parameters, {} trained, {}, sequences of {}\n{}",
               printable(options.model.model), architecture_to_text(model.architecture),
               network.parameter_count(), network.trained_parameter_count(),
               dtype_name(network.dtype), model.sequence, bytes_to_text(table));
    for (const std::string& note : model.notes) fmt::print("note: {}\n", printable(note));
    if (table.fits()) fmt::print("fits\n");
  }
  if (table.fits()) return kExitOk;
  std::fflush(stdout);
  fmt::print(stderr, "stagecoach inspect: does not fit: {}\n", printable(table.problem));
  return kExitDoesNotFit;
}

}  // namespace

Command make_inspect_command() {
  auto options = std::make_shared<InspectOptions>();
  Command command;
  command.name = "inspect";
  command.summary = "a model's shape, its parameters and what training it needs of each memory";
  command.examples = {"stagecoach inspect qwen3-8b --devices sim:4xrtx4090",
                      "stagecoach inspect gpt2 --devices cpu:4[memory=512M] --sequence 256 --json",
                      "stagecoach inspect llama3.1-8b --update async --host-memory 128G"};
  command.notes =
      "exit code 0: it fits; 4: it does not, and stderr says what to change. Nothing is allocated.";
  command.options = {
      {"MODEL", "MODEL", "Hugging Face folder, config.json or preset", &options->model.model, true},
      {"--devices", "SPEC", "devices to train on; without them the host alone is checked",
       &options->devices},
      {"--schedule", "S", "roundpipe (default) or another that trains", &options->schedule}};
  for (CommandOption& option : model_command_options(options->model)) {
    command.options.push_back(std::move(option));
  }
  for (CommandOption& option : optimizer_command_options(options->model)) {
    command.options.push_back(std::move(option));
  }
  command.options.push_back({"--device-share", "S",
                             "share of the updates that devices make, 0 (default) to 1, or auto",
                             &options->device_share});
  command.options.push_back({"--save-copy", "SIZE",
                             "host memory for copies while a save goes on (0: updates wait)",
                             &options->save_copy});
  command.options.push_back({"--host-memory", "SIZE",
                             "what the host has (what this machine leaves a program now)",
                             &options->model.host_memory});
  command.run = [options](const CommandContext& context) { return run(*options, context); };
  return command;
}

}  // namespace stagecoach
