#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "scheduler/machine_profile.h"
#include "tools/bandwidth/measurement.h"

namespace stagecoach {

/// A profile older than this may hold; links, drivers and memory have changed in less.
inline constexpr double kOldProfileDays = 30;
/// What a sentinel may differ by from what the profile says.
inline constexpr double kMostDrift = 0.10;

/// A figure of a profile, measured again.
struct SentinelResult {
  std::string entry;   ///< "cards[0]: up_bytes_per_s"
  std::string device;  ///< "cuda:0"; empty: the host
  double before = 0;   ///< of the profile, in GB/s
  double now = 0;      ///< 0: not measured
  MeasurementStatus status = MeasurementStatus::kNotRun;
  std::string reason;  ///< where it is not ok
  std::vector<SampleFlag> flags;

  /// A mock that was slower than its pace says that the host is busy, and nothing of the profile.
  bool is_measured() const;
  /// Measured, and by more than `kMostDrift` different.
  bool has_drifted() const;
};

/// What comparing a profile with the machine gave.
struct ProfileCheck {
  std::vector<std::string> warnings;  ///< it may hold all the same
  std::vector<SentinelResult> sentinels;
  bool is_interrupted = false;
};

/// Days from `when` ("2026-11-30T17:05:00Z") to `now`; nothing where it is no such text.
std::optional<double> age_days(const std::string& when, std::time_t now);

/// Compares what a profile was measured on with the machine as it is `identity`, `now`. Refused
/// where it is another machine: invalid argument, by `path`, field, both values and what to do.
/// Else the warnings: soft fields, age, a profile that nobody measured.
Result<std::vector<std::string>> check_profile_origin(const MachineProfile& profile,
                                                      const std::string& path,
                                                      const MachineIdentity& identity,
                                                      std::time_t now);

/// 130 interrupted, 3 wrong bytes, 4 something has drifted, 5 something could not be measured.
int profile_check_exit_code(const ProfileCheck& check);

/// For people: a line a sentinel, warnings, what to do.
std::string profile_check_table(const ProfileCheck& check);

/// For scripts: `sentinels`, `drifted` (the entries), `warnings`, `holds`.
Json profile_check_json(const ProfileCheck& check);

}  // namespace stagecoach
