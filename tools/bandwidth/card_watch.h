#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/json.h"
#include "hal/device_info.h"
#include "tools/bandwidth/card_management.h"

namespace stagecoach {

/// Looks at the cards of a run through their management libraries: before it, between its groups
/// and at its end, never while something is measured. Without devices that are cards no library is
/// opened. Thread rule: one thread.
class CardWatch {
 public:
  /// Opens the libraries that the settings name and takes the first look.
  static Result<CardWatch> start(const std::vector<DeviceInfo>& devices);
  /// The same through `management`.
  CardWatch(CardManagement management, const std::vector<DeviceInfo>& devices);

  /// Takes another look.
  void look();
  /// Adds to each of `context["devices"]` as "card" what is known, null where nothing is, and why a
  /// library is not there as "management_absent".
  void describe(Json& context) const;
  /// The last look at a device; nothing where it is unknown.
  std::optional<CardState> last(const std::string& id) const;

 private:
  struct Watched {
    DeviceInfo device;
    std::optional<CardState> first, last;
    std::set<std::string> reasons;  ///< seen at any look
    int64_t other_processes = 0;    ///< most at any look
  };

  CardManagement management_;
  std::vector<Watched> cards_;
  int64_t start_ns_ = 0, last_ns_ = 0;
};

/// Programs beside this one, which is one of them. Inside a container their numbers are the host's,
/// so that it cannot be told which. Pure.
int64_t count_other_processes(const std::vector<CardProcess>& processes);

/// What a process measured of its group joins what others measured of theirs: replays and throttled
/// time add up, reasons join. `earlier` is the context of those before.
void join_card_context(const Json& earlier, Json& context);

}  // namespace stagecoach
