#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "backends/gpu/gpu_types.h"
#include "hal/copy.h"
#include "hal/ring_queue.h"
#include "testing/fake_gpu_options.h"

namespace stagecoach::fake_gpu {

constexpr int kMaxArguments = 24;

/// One recording of an event.
struct Record {
  int references = 0;
  bool done = false;
  int64_t time_ns = 0;
};

/// A card and its primary context, which exists while retained.
struct Card {
  int ordinal = 0;
  int retained = 0;
  int sticky_error = 0;  ///< what every call in this context returns from now on
  int touching = 0;      ///< copies and kernels that are touching memory
  ByteCount used_bytes = 0;
  /// A copy engine a direction: of the copies that are ready, the one issued first goes first.
  struct Engine {
    bool busy = false;
    std::vector<uint64_t> ready;
    int queued = 0;  ///< copies, issued and not done
    int most_queued = 0;
  };
  Engine up, down;
  std::set<int> peers;
};

/// One operation in a stream's queue.
struct Entry {
  enum class Kind : uint8_t { kCopy, kFill, kLaunch, kRecord, kWait } kind = Kind::kRecord;
  uint64_t ticket = 0;
  GpuAddress target = 0;
  GpuAddress source = 0;
  size_t size = 0;  ///< bytes
  CopyDirection direction = CopyDirection::kHostToHost;
  bool is_peer = false;
  uint32_t pattern = 0;
  int pattern_size = 0;
  const FakeGpuKernel* kernel = nullptr;
  std::array<uint64_t, kMaxArguments> arguments = {};
  Record* record = nullptr;
};

/// A queue and the thread that serves it.
struct Stream {
  Card* card = nullptr;
  RingQueue<Entry> queue;
  bool running = false;
  bool closing = false;
  bool ended = false;  ///< the thread has left
  std::thread thread;
};

/// The recording that an event stands for now.
struct Event {
  Card* card = nullptr;
  bool timing = false;
  Record* latest = nullptr;
};

/// Loaded code.
struct Module {
  Card* card = nullptr;
};

/// A kernel of a module.
struct LoadedFunction {
  Card* card = nullptr;
  const FakeGpuKernel* kernel = nullptr;
};

/// A piece of device memory.
struct Allocation {
  Card* card = nullptr;
  size_t size = 0;
};

/// Objects behind handles. A freed handle is the next one given out, as drivers like to do, so
/// that whoever keeps a stale one reaches a stranger's object.
template <typename T>
class HandleTable {
 public:
  void* add(std::shared_ptr<T> object) {
    size_t slot = objects_.size();
    if (free_.empty()) {
      objects_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    objects_[slot] = std::move(object);
    return reinterpret_cast<void*>((slot + 1) * kSpacing);
  }
  std::shared_ptr<T> find(void* handle) const {
    size_t slot = slot_of(handle);
    return slot < objects_.size() ? objects_[slot] : nullptr;
  }
  std::shared_ptr<T> remove(void* handle) {
    std::shared_ptr<T> object = find(handle);
    if (object == nullptr) return nullptr;
    objects_[slot_of(handle)] = nullptr;
    free_.push_back(slot_of(handle));
    return object;
  }
  size_t size() const { return objects_.size() - free_.size(); }
  const std::vector<std::shared_ptr<T>>& all() const { return objects_; }

 private:
  static constexpr size_t kSpacing = 64;
  static size_t slot_of(void* handle) { return reinterpret_cast<uintptr_t>(handle) / kSpacing - 1; }

  std::vector<std::shared_ptr<T>> objects_;
  std::vector<size_t> free_;
};

}  // namespace stagecoach::fake_gpu
