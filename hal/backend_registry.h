#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "hal/backend.h"

namespace stagecoach {

/// What all devices of a run have in common, beside what the device string says of each.
struct OpenOptions {
  /// Only ways of computing that give the same bits every run (train.deterministic = true).
  bool is_deterministic = false;
};

/// The backends of this program. Registration is explicit: an executable lists what it holds
/// (backends/register_backends.cpp); nothing registers itself.
/// Thread rule: one thread at a time.
class BackendRegistry {
 public:
  void add(std::unique_ptr<Backend> backend);
  const std::vector<std::unique_ptr<Backend>>& backends() const { return backends_; }
  /// The backend called `name`, or null.
  Backend* find(std::string_view name) const;

  /// Opens every device that `text` names, in order. Syntax and option errors are invalid
  /// arguments; a backend not built in, or an absent device, is unavailable with the reason.
  Result<std::vector<std::unique_ptr<Device>>> open_devices(std::string_view text,
                                                            const OpenOptions& options = {}) const;

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
};

}  // namespace stagecoach
