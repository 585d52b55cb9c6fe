#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu/gpu_clock.h"
#include "backends/gpu/gpu_context_hold.h"
#include "backends/gpu/gpu_executable.h"
#include "backends/gpu/gpu_kernel_table.h"
#include "backends/gpu/gpu_library.h"
#include "backends/gpu/gpu_mark_pool.h"
#include "backends/gpu/gpu_memory.h"
#include "core/clock.h"
#include "core/log.h"

namespace stagecoach {

template <typename Api>
class GpuStream;

/// What the streams, events and buffers of one logical device share.
/// Thread rule: any thread.
template <typename Api>
class GpuDeviceCore {
 public:
  GpuDeviceCore(std::string device_name, std::unique_ptr<GpuContextHold<Api>> context,
                ByteCount memory_bytes, const GpuArch& device_arch, GpuKernelTable& kernel_table)
      : name(std::move(device_name)),
        hold(std::move(context)),
        account(memory_bytes),
        arch(with_scratch(device_arch, account.set_aside_bytes())),
        table(kernel_table),
        marks(hold->api(), hold->context(), false),
        timing_marks(hold->api(), hold->context(), true),
        clock(hold->api(), hold->context()),
        kernels(name, hold->api(), hold->context()) {}
  /// Waits, within reason, for streams that failed and were destroyed with work still queued.
  ~GpuDeviceCore() {
    if (drain_buried()) {
      GpuScope<Api> scope(api(), context());
      library.reset();
      return;
    }
    log_warning(
        fmt::format("{} does not finish its work; its memory stays allocated until the "
                    "program ends",
                    name));
    kernels.keep();
    hold->keep();
    static_cast<void>(library.release());
  }

  const Api& api() const { return hold->api(); }
  GpuContextHandle context() const { return hold->context(); }

  /// How a piece of memory is given back.
  enum class Release : uint8_t { kDevice, kScratch, kPinned, kRegistered };

  /// Device memory (kDevice or kScratch), counted; Api::kOutOfMemory when so much is not free.
  int allocate(GpuAddress& address, ByteCount size, Release how) {
    release_deferred();
    bool is_scratch = how == Release::kScratch;
    bool reserved = is_scratch ? account.reserve_scratch(size) : account.reserve(size);
    if (!reserved) return Api::kOutOfMemory;
    GpuScope<Api> scope(api(), context());
    int error = scope.run([&] { return api().allocate(&address, static_cast<size_t>(size)); });
    if (error == Api::kSuccess) {
      account.commit();
    } else if (is_scratch) {
      account.release_scratch(size);
    } else {
      account.release(size);
    }
    return error;
  }
  /// Gives memory back, at once unless a destroyed stream might still touch it.
  /// `owner`, if any, goes after it.
  void release(Release how, GpuAddress address, ByteCount size,
               std::shared_ptr<void> owner = nullptr) {
    Freed freed{how, address, size, std::move(owner)};
    if (!hold->runtime().has_buried()) {
      release_now(freed);
      return;
    }
    std::lock_guard lock(deferred_mutex_);
    deferred_.push_back(std::move(freed));
  }

  /// Waits until no destroyed stream has work queued; false when that takes too long, because the
  /// card hangs: ending the program must not hang with it.
  bool drain_buried() {
    constexpr int64_t kPatienceNs = 5'000'000'000;
    constexpr int64_t kPauseNs = 200'000;
    int64_t end_ns = RealClock::instance().now_ns() + kPatienceNs;
    for (;;) {
      if (release_deferred()) return true;
      int64_t now_ns = RealClock::instance().now_ns();
      if (now_ns >= end_ns) return false;
      sleep_until_ns(now_ns + kPauseNs);
    }
  }

  /// A failure that leaves nothing of the card usable: every stream takes it over.
  void poison(const Status& status) {
    std::lock_guard lock(streams_mutex);
    for (GpuStream<Api>* stream : streams) stream->cell()->fail(status);
  }

  const std::string name;  ///< for messages
  const std::unique_ptr<GpuContextHold<Api>> hold;
  GpuMemoryAccount account;
  const GpuArch arch;
  GpuKernelTable& table;
  GpuMarkPool<Api> marks;
  GpuMarkPool<Api> timing_marks;
  GpuClock<Api> clock;
  GpuExecutable<Api> kernels;
  std::unique_ptr<GpuLibrary> library;  ///< null: there is none
  std::mutex streams_mutex;
  std::vector<GpuStream<Api>*> streams;      ///< those that exist, oldest first
  GpuStreamTotals retired_totals;            ///< of streams that are gone; under streams_mutex
  std::atomic<ByteCount> far_bytes_up{0};    ///< written here by streams of other devices
  std::atomic<ByteCount> far_bytes_down{0};  ///< read from here by streams of other devices

 private:
  static GpuArch with_scratch(GpuArch arch, ByteCount scratch_bytes) {
    arch.scratch_bytes = scratch_bytes;
    return arch;
  }

  struct Freed {
    Release how;
    GpuAddress address;
    ByteCount size;
    std::shared_ptr<void> owner;  ///< of registered memory
  };

  // On a lost card these calls fail, and there is nothing left to free.
  void release_now(const Freed& freed) {
    GpuScope<Api> scope(api(), context());
    auto* host = reinterpret_cast<std::byte*>(static_cast<uintptr_t>(freed.address));
    switch (freed.how) {
      case Release::kDevice:
        static_cast<void>(scope.run([&] { return api().free(freed.address); }));
        account.release(freed.size);
        return;
      case Release::kScratch:
        static_cast<void>(scope.run([&] { return api().free(freed.address); }));
        account.release_scratch(freed.size);
        return;
      case Release::kPinned:
        static_cast<void>(scope.run([&] { return api().free_host(host); }));
        return;
      case Release::kRegistered:
        hold->runtime().unregister_host(host, freed.size);
        return;
    }
  }
  /// Gives back what destroyed streams kept from being given back; false while they still do.
  bool release_deferred() {
    if (hold->runtime().has_buried()) return false;
    std::vector<Freed> freed;
    {
      std::lock_guard lock(deferred_mutex_);
      freed.swap(deferred_);
    }
    for (const Freed& one : freed) release_now(one);
    return true;
  }

  std::mutex deferred_mutex_;
  std::vector<Freed> deferred_;
};

}  // namespace stagecoach
