#pragma once

#include <memory>
#include <utility>

#include "backends/gpu/gpu_runtime.h"

namespace stagecoach {

/// Keeps a card's primary context for as long as a logical device of it exists.
template <typename Api>
class GpuContextHold {
 public:
  GpuContextHold(std::shared_ptr<GpuRuntime<Api>> runtime, int card, GpuContextHandle context)
      : runtime_(std::move(runtime)), card_(card), context_(context) {}
  ~GpuContextHold() {
    if (kept_) return;
    // Nothing destroyed may stay current on this thread.
    GpuContextHandle current = nullptr;
    if (api().get_current(&current) == Api::kSuccess && current == context_) {
      static_cast<void>(api().set_current(nullptr));
    }
    static_cast<void>(api().release_context(card_));
  }
  GpuContextHold(const GpuContextHold&) = delete;
  GpuContextHold& operator=(const GpuContextHold&) = delete;

  GpuRuntime<Api>& runtime() const { return *runtime_; }
  const Api& api() const { return runtime_->api(); }
  GpuContextHandle context() const { return context_; }
  int card() const { return card_; }
  /// The context is left to the end of the program: destroying it would wait for its work.
  void keep() { kept_ = true; }

 private:
  const std::shared_ptr<GpuRuntime<Api>> runtime_;
  const int card_;
  const GpuContextHandle context_;
  bool kept_ = false;
};

}  // namespace stagecoach
