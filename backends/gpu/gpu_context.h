#pragma once

#include <fmt/format.h>
#include <string_view>

#include "backends/gpu/gpu_types.h"
#include "core/status.h"

namespace stagecoach {

/// The failure that driver error `code` of `function` stands for. Never called with success.
template <typename Api>
Status gpu_status(const Api& api, int code, std::string_view function) {
  const char* name = api.error_name(code);
  const char* text = api.error_text(code);
  return Status(Api::map_error(code),
                fmt::format("{}: {} ({}): {}", function, name == nullptr ? "unknown error" : name,
                            code, text == nullptr ? "the driver has no text for it" : text));
}

/// Makes a context current for a block of driver calls: the only place that switches contexts, so
/// that no call can reach the device that happened to be current.
template <typename Api>
class GpuScope {
 public:
  GpuScope(const Api& api, GpuContextHandle context) : api_(api) {
    // What cannot be told, as where the context current here has been destroyed, is not restored.
    if (api_.get_current(&previous_) != Api::kSuccess) previous_ = nullptr;
    if (previous_ == context) return;
    error_ = api_.set_current(context);
    // A thread that had none keeps ours: the next scope on it then has nothing to switch.
    must_restore_ = error_ == Api::kSuccess && previous_ != nullptr;
  }
  ~GpuScope() {
    if (must_restore_) static_cast<void>(api_.set_current(previous_));
  }
  GpuScope(const GpuScope&) = delete;
  GpuScope& operator=(const GpuScope&) = delete;

  /// Success, or why the context could not be made current.
  int error() const { return error_; }
  /// `call()`'s error, or that of the scope.
  template <typename Call>
  int run(Call&& call) const {
    return error_ != Api::kSuccess ? error_ : call();
  }

 private:
  const Api& api_;
  GpuContextHandle previous_ = nullptr;
  int error_ = 0;
  bool must_restore_ = false;
};

}  // namespace stagecoach
