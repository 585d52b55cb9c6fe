#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "backends/gpu/gpu_context.h"
#include "backends/gpu/gpu_stream_cell.h"

namespace stagecoach {

template <typename Api>
class GpuMarkPool;

/// A mark with the driver event that stands for it.
template <typename Api>
class GpuEventMark final : public GpuMark {
 public:
  GpuEventMark(GpuMarkPool<Api>& pool, GpuEventHandle handle) : pool_(pool), handle_(handle) {}
  GpuEventHandle handle() const { return handle_; }

 private:
  Result<bool> ask_driver() override {
    const Api& api = pool_.api();
    GpuScope<Api> scope(api, pool_.context());
    int error = scope.run([&] { return api.query_event(handle_); });
    if (error == Api::kNotReady) return false;
    if (error != Api::kSuccess) return gpu_status(api, error, "query event");
    return true;
  }
  void recycle() override { pool_.give_back(*this); }

  GpuMarkPool<Api>& pool_;
  const GpuEventHandle handle_;
};

/// Driver events of one device and kind (with timing or without), reused: creating one costs
/// microseconds and allocates. Destroyed with the device.
/// Thread rule: any thread.
template <typename Api>
class GpuMarkPool {
 public:
  GpuMarkPool(const Api& api, GpuContextHandle context, bool timing)
      : api_(api), context_(context), timing_(timing) {}
  ~GpuMarkPool() {
    GpuScope<Api> scope(api_, context_);
    for (auto& mark : all_) {
      static_cast<void>(scope.run([&] { return api_.destroy_event(mark->handle()); }));
    }
  }
  GpuMarkPool(const GpuMarkPool&) = delete;
  GpuMarkPool& operator=(const GpuMarkPool&) = delete;

  const Api& api() const { return api_; }
  GpuContextHandle context() const { return context_; }

  /// A mark for the place behind `sequence` of `stream`, already recorded there.
  Result<GpuMarkRef> record(GpuStreamHandle stream, const std::shared_ptr<GpuStreamCell>& cell,
                            uint64_t sequence, const GpuStreamTotals& totals) {
    STAGECOACH_ASSIGN_OR_RETURN(GpuEventMark<Api> * mark, take());
    GpuMarkRef ref(*mark, cell, sequence, totals);
    GpuScope<Api> scope(api_, context_);
    int error = scope.run([&] { return api_.record_event(mark->handle(), stream); });
    if (error != Api::kSuccess) return gpu_status(api_, error, "record event");
    return ref;
  }

  void give_back(GpuEventMark<Api>& mark) {
    std::lock_guard lock(mutex_);
    free_.push_back(&mark);
  }

 private:
  Result<GpuEventMark<Api>*> take() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) {
      GpuScope<Api> scope(api_, context_);
      GpuEventHandle handle = nullptr;
      int error = scope.run([&] { return api_.create_event(&handle, timing_); });
      if (error != Api::kSuccess) return gpu_status(api_, error, "create event");
      all_.push_back(std::make_unique<GpuEventMark<Api>>(*this, handle));
      free_.reserve(all_.size());
      free_.push_back(all_.back().get());
    }
    GpuEventMark<Api>* mark = free_.back();
    free_.pop_back();
    return mark;
  }

  const Api& api_;
  const GpuContextHandle context_;
  const bool timing_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<GpuEventMark<Api>>> all_;
  std::vector<GpuEventMark<Api>*> free_;
};

}  // namespace stagecoach
