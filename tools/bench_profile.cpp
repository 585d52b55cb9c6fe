#include "tools/bench_profile.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

#include "core/file.h"
#include "core/suggest.h"
#include "memory/host_limits.h"
#include "tools/bandwidth/nvbandwidth_comparison.h"
#include "tools/bandwidth/output_file.h"
#include "tools/bandwidth/profile_check.h"
#include "tools/bandwidth/profile_csv.h"
#include "tools/bandwidth/profile_sentinels.h"
#include "tools/bandwidth/profile_text.h"
#include "tools/bandwidth/results_reader.h"
#include "tools/card_devices.h"
#include "tools/exit_code.h"
#include "train/interrupt.h"
#include "train/progress.h"

namespace stagecoach {

namespace {

/// What can be done with a profile.
struct ProfileWord {
  const char* name;
  const char* usage;
  size_t least_files, most_files;
  Result<int> (*run)(const CommandContext& context, const BenchOptions& options, bool is_json);
};

/// The file that was named behind the word.
const std::string& file_of(const BenchOptions& options) {
  return options.files[1];
}

void print_json(const Json& json) {
  fmt::print("{}\n", json.dump());
}

Result<int> show(const CommandContext&, const BenchOptions& options, bool is_json) {
  STAGECOACH_ASSIGN_OR_RETURN(MachineProfile profile, read_machine_profile(file_of(options)));
  if (is_json) {
    print_json(profile_json(profile));
  } else {
    fmt::print("{}", profile_table(profile));
  }
  return kExitOk;
}

Result<int> export_csv(const CommandContext&, const BenchOptions& options, bool is_json) {
  if (options.csv_file.empty()) {
    return invalid_argument("'bench bandwidth profile export FILE' needs --csv OUT, where to");
  }
  STAGECOACH_ASSIGN_OR_RETURN(MachineProfile profile, read_machine_profile(file_of(options)));
  std::error_code error;
  if (std::filesystem::equivalent(file_of(options), options.csv_file, error)) {
    return invalid_argument(fmt::format(
        "--csv is '{}', which is the profile itself; name another file", options.csv_file));
  }
  std::string csv = profile_csv(profile);
  STAGECOACH_RETURN_IF_ERROR(
      output_failure("--csv", options.csv_file, write_file_atomically(options.csv_file, csv)));
  int64_t rows = std::count(csv.begin(), csv.end(), '\n') - 1;
  if (is_json) {
    Json json = Json::object();
    json["csv"] = options.csv_file;
    json["rows"] = rows;
    print_json(json);
  } else {
    fmt::print("{} rows in {}\n", rows, options.csv_file);
  }
  return kExitOk;
}

Result<Json> read_json(const std::string& path) {
  STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(path));
  Result<Json> json = Json::parse(text);
  if (!json.is_ok()) return json.status().with_context(path);
  return json;
}

Result<int> import(const CommandContext&, const BenchOptions& options, bool is_json) {
  STAGECOACH_ASSIGN_OR_RETURN(Json theirs, read_json(file_of(options)));
  STAGECOACH_ASSIGN_OR_RETURN(NvbandwidthFile file, read_nvbandwidth(theirs, file_of(options)));
  BandwidthReport ours;
  if (options.files.size() > 2) {
    STAGECOACH_ASSIGN_OR_RETURN(Json json, read_json(options.files[2]));
    STAGECOACH_ASSIGN_OR_RETURN(ours, read_bandwidth_json(json, options.files[2]));
  }
  NvbandwidthComparison comparison = compare_with_nvbandwidth(file, ours);
  if (is_json) {
    print_json(nvbandwidth_json(comparison));
  } else {
    fmt::print("{}", nvbandwidth_table(comparison));
  }
  return kExitOk;
}

/// The opened devices that are the profile's cards, in their order.
Result<std::vector<Device*>> devices_of(const MachineProfile& profile, const std::string& path,
                                        const CardDevices& opened) {
  std::vector<Device*> devices;
  std::vector<std::string> absent;
  for (const MachineCard& card : profile.cards) {
    if (card.device.empty()) continue;
    Device* found = nullptr;
    for (Device* device : opened.pointers()) {
      if (device->id() == card.device) found = device;
    }
    if (found == nullptr) {
      absent.push_back(card.device);
    } else {
      devices.push_back(found);
    }
  }
  if (devices.empty() && absent.empty()) {
    return invalid_argument(
        fmt::format("{}: cards: none has 'device', which a card must have to be measured again; "
                    "'profile show' shows it",
                    path));
  }
  if (absent.empty()) return devices;
  std::string why = opened.absent.empty()
                        ? "name them with --devices"
                        : fmt::format("no other card: {}", fmt::join(opened.absent, "; "));
  return unavailable(
      fmt::format("{}: cards: device {} is not here ({}); measure what is here with "
                  "'stagecoach bench bandwidth full --save-profile FILE'",
                  path, fmt::join(absent, ", "), why));
}

Result<std::vector<SentinelResult>> measure_sentinels(const MachineProfile& profile,
                                                      const std::vector<Device*>& devices,
                                                      const BenchOptions& options) {
  STAGECOACH_ASSIGN_OR_RETURN(BandwidthOptions read, read_bandwidth_options(options));
  STAGECOACH_ASSIGN_OR_RETURN(HostLimits limits, read_host_limits());
  std::vector<MeasuredDevice> measured;
  for (Device* device : devices) measured.push_back({device, 0});
  std::unique_ptr<TaskPool> pool = TaskPool::create(usable_thread_count());
  STAGECOACH_ASSIGN_OR_RETURN(SentinelPlan plan, plan_sentinels(profile, measured, std::move(read),
                                                                limits.free_bytes, *pool));
  Progress progress;
  progress.phase("measuring some figures of the profile again");
  return run_sentinels(std::move(plan));
}

Result<int> check(const CommandContext& context, const BenchOptions& options, bool is_json) {
  const std::string& path = file_of(options);
  STAGECOACH_ASSIGN_OR_RETURN(MachineProfile profile, read_machine_profile(path));
  STAGECOACH_ASSIGN_OR_RETURN(CardDevices opened, open_cards(context.backends, options.devices));
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<Device*> devices, devices_of(profile, path, opened));
  std::vector<DeviceInfo> infos;
  for (const Device* device : devices) infos.push_back(device->info());
  STAGECOACH_ASSIGN_OR_RETURN(MachineIdentity identity, read_machine_identity(infos));
  ProfileCheck found;
  STAGECOACH_ASSIGN_OR_RETURN(found.warnings,
                              check_profile_origin(profile, path, identity, std::time(nullptr)));
  InterruptGuard guard;
  STAGECOACH_ASSIGN_OR_RETURN(found.sentinels, measure_sentinels(profile, devices, options));
  found.is_interrupted = InterruptGuard::is_interrupted();
  if (is_json) {
    print_json(profile_check_json(found));
  } else {
    fmt::print("{}", profile_check_table(found));
  }
  return profile_check_exit_code(found);
}

constexpr ProfileWord kWords[] = {
    {"show", "show FILE", 1, 1, show},
    {"check", "check FILE", 1, 1, check},
    {"export", "export FILE --csv OUT", 1, 1, export_csv},
    {"import", "import NVBANDWIDTH.json [RESULTS.json]", 1, 2, import}};

/// Options of other suites would do nothing here.
Status refuse_other_options(const BenchOptions& options, const ProfileWord& word) {
  bool is_export = std::string_view(word.name) == "export";
  bool is_check = std::string_view(word.name) == "check";
  const std::pair<const char*, bool> given[] = {
      {"--save-profile", !options.profile_file.empty()},
      {"--out", !options.out_file.empty()},
      {"--baseline", !options.baseline.empty()},
      {"--fail-below", !options.fail_below.empty()},
      {"--group", !options.group.empty()},
      {"--sizes", !options.sizes.empty()},
      {"--depth", !options.depth.empty()},
      {"--mem", !options.kinds.empty()},
      {"--working-set", !options.working_set.empty()},
      {"--isolate", options.is_isolated},
      {"--list", options.is_list},
      {"--dry-run", options.is_dry_run},
      {"--raw", options.has_samples},
      {"--csv", !options.csv_file.empty() && !is_export},
      {"--format csv", options.format == "csv"},
      {"--devices", !options.devices.empty() && !is_check},
      {"--filter", !options.filter.empty() && !is_check}};
  for (const auto& [name, is_given] : given) {
    if (!is_given) continue;
    return invalid_argument(fmt::format(
        "{} does nothing for 'bench bandwidth profile {}'; leave it out", name, word.name));
  }
  return Status::ok();
}

Result<const ProfileWord*> find_word(const BenchOptions& options) {
  std::vector<std::string> usages, names;
  for (const ProfileWord& word : kWords) {
    usages.emplace_back(word.usage);
    names.emplace_back(word.name);
  }
  if (options.files.empty()) {
    return invalid_argument(
        fmt::format("'bench bandwidth profile' needs one of: {}", fmt::join(usages, ", ")));
  }
  for (const ProfileWord& word : kWords) {
    if (options.files[0] != word.name) continue;
    size_t files = options.files.size() - 1;
    if (files >= word.least_files && files <= word.most_files) return &word;
    return invalid_argument(fmt::format("'bench bandwidth profile {}' is given {} files; write: {}",
                                        word.name, files, word.usage));
  }
  std::string nearest = nearest_name(options.files[0], names);
  std::string hint = nearest.empty() ? fmt::format("it has {}", fmt::join(names, ", "))
                                     : fmt::format("did you mean '{}'?", nearest);
  return invalid_argument(
      fmt::format("'bench bandwidth profile' has no '{}'; {}", options.files[0], hint));
}

}  // namespace

Result<int> run_bench_profile(const CommandContext& context, const BenchOptions& options) {
  STAGECOACH_ASSIGN_OR_RETURN(const ProfileWord* word, find_word(options));
  STAGECOACH_RETURN_IF_ERROR(refuse_other_options(options, *word));
  return word->run(context, options, context.json || options.format == "json");
}

}  // namespace stagecoach
