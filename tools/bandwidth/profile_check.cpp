#include "tools/bandwidth/profile_check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/exit_code.h"

namespace stagecoach {

namespace {

constexpr double kSecondsOfDay = 86400;

std::string verdict_of(const SentinelResult& one) {
  bool is_ok = one.status == MeasurementStatus::kOk;
  if (!is_ok) return std::string(measurement_status_name(one.status));
  if (!one.is_measured()) return "overrun";
  return one.has_drifted() ? "drifted" : "holds";
}

std::string flag_text(const SentinelResult& one) {
  std::string text;
  for (SampleFlag flag : one.flags) {
    text += (text.empty() ? "" : " ") + std::string(sample_flag_name(flag));
  }
  return text;
}

Json sentinel_json(const SentinelResult& one) {
  Json json = Json::object();
  json["entry"] = one.entry;
  json["device"] = one.device.empty() ? Json() : Json(one.device);
  json["unit"] = "GB/s";
  json["profile"] = one.before;
  json["now"] = one.is_measured() ? Json(one.now) : Json();
  json["ratio"] = one.is_measured() ? Json(one.now / one.before) : Json();
  json["verdict"] = verdict_of(one);
  json["reason"] = one.reason.empty() ? Json() : Json(one.reason);
  json["flags"] = Json::array();
  for (SampleFlag flag : one.flags) json["flags"].push_back(sample_flag_name(flag));
  return json;
}

}  // namespace

bool SentinelResult::is_measured() const {
  bool has_overrun = std::find(flags.begin(), flags.end(), SampleFlag::kOverrun) != flags.end();
  return status == MeasurementStatus::kOk && !has_overrun;
}

bool SentinelResult::has_drifted() const {
  return is_measured() && std::abs(now - before) > kMostDrift * before;
}

std::optional<double> age_days(const std::string& when, std::time_t now) {
  std::tm time{};
  char zone = 0, more = 0;
  int fields = std::sscanf(when.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%c%c", &time.tm_year, &time.tm_mon,
                           &time.tm_mday, &time.tm_hour, &time.tm_min, &time.tm_sec, &zone, &more);
  constexpr int kFields = 7;
  if (fields != kFields || zone != 'Z') return std::nullopt;
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  return static_cast<double>(now - ::timegm(&time)) / kSecondsOfDay;
}

Result<std::vector<std::string>> check_profile_origin(const MachineProfile& profile,
                                                      const std::string& path,
                                                      const MachineIdentity& identity,
                                                      std::time_t now) {
  std::vector<std::string> warnings, refusals;
  if (!profile.measurement) {
    warnings.emplace_back("it was written by hand and does not say on which machine it holds");
    return warnings;
  }
  for (const IdentityChange& change : profile.measurement->machine.changes_to(identity)) {
    if (change.is_soft()) {
      warnings.push_back(change.text());
    } else {
      std::string before = change.before.empty() ? "missing" : fmt::format("'{}'", change.before);
      refusals.push_back(
          fmt::format("{} is {}, and of this machine '{}'", change.field, before, change.now));
    }
  }
  if (!refusals.empty()) {
    return invalid_argument(fmt::format(
        "{}: measurement: machine: {}; it is not of this machine as it is now: measure again with "
        "'stagecoach bench bandwidth full --save-profile FILE'",
        path, fmt::join(refusals, "; ")));
  }
  std::optional<double> days = age_days(profile.measurement->when, now);
  if (!days) {
    warnings.push_back(
        fmt::format("measurement: when is '{}', which tells no age", profile.measurement->when));
  } else if (*days > kOldProfileDays) {
    warnings.push_back(
        fmt::format("it is {:.0f} days old; measure again after {:.0f}", *days, kOldProfileDays));
  } else if (*days < -1) {
    warnings.push_back(fmt::format("it was measured {:.0f} days from now; set the clock", -*days));
  }
  return warnings;
}

int profile_check_exit_code(const ProfileCheck& check) {
  if (check.is_interrupted) return kExitInterrupted;
  int code = kExitOk;
  for (const SentinelResult& one : check.sentinels) {
    if (one.status == MeasurementStatus::kMismatch) return kExitData;
    if (one.has_drifted()) code = kExitDoesNotFit;
    if (!one.is_measured() && code == kExitOk) code = kExitPartial;
  }
  return code;
}

std::string profile_check_table(const ProfileCheck& check) {
  std::string text = fmt::format("{:<28} {:<10} {:>9} {:>9} {:>7}  {:<9} {}\n", "entry", "device",
                                 "profile", "now", "ratio", "verdict", "GB/s");
  std::vector<std::string> drifted;
  for (const SentinelResult& one : check.sentinels) {
    std::string device = one.device.empty() ? "host" : one.device;
    if (one.has_drifted()) drifted.push_back(fmt::format("{} ({})", one.entry, device));
    std::string now = one.is_measured() ? fmt::format("{:.4g}", one.now) : "-";
    std::string ratio = one.is_measured() ? fmt::format("{:.3f}", one.now / one.before) : "-";
    std::string line =
        fmt::format("{:<28} {:<10} {:>9.4g} {:>9} {:>7}  {:<9} {}", one.entry, device, one.before,
                    now, ratio, verdict_of(one), one.reason.empty() ? flag_text(one) : one.reason);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  for (const std::string& warning : check.warnings) text += "warning: " + warning + "\n";
  if (drifted.empty()) {
    bool is_whole = profile_check_exit_code(check) == kExitOk;
    return text + (is_whole ? "the profile holds\n" : "not everything could be measured\n");
  }
  return text + fmt::format(
                    "drifted by more than {:.0f} %: {}; find out what has changed (load, "
                    "link width, slot), then measure again with --save-profile\n",
                    100 * kMostDrift, fmt::join(drifted, ", "));
}

Json profile_check_json(const ProfileCheck& check) {
  Json json = Json::object();
  json["holds"] = profile_check_exit_code(check) == kExitOk;
  json["is_interrupted"] = check.is_interrupted;
  json["most_drift"] = kMostDrift;
  json["sentinels"] = Json::array();
  json["drifted"] = Json::array();
  for (const SentinelResult& one : check.sentinels) {
    json["sentinels"].push_back(sentinel_json(one));
    if (one.has_drifted()) json["drifted"].push_back(one.entry);
  }
  json["warnings"] = Json::array();
  for (const std::string& warning : check.warnings) json["warnings"].push_back(warning);
  return json;
}

}  // namespace stagecoach
