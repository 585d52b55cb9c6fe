#pragma once

#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu/gpu_context.h"
#include "core/bytes.h"

namespace stagecoach {

/// What all devices of one loaded driver share. Outlives them.
/// Thread rule: any thread.
template <typename Api>
class GpuRuntime {
 public:
  explicit GpuRuntime(Api api) : api_(std::move(api)) {}

  const Api& api() const { return api_; }

  /// Page-locks a range for every context. A range that is locked already, by another device of
  /// this program, is shared: drivers refuse to lock it twice. Returns the driver's error.
  int register_host(std::byte* data, ByteCount size) {
    std::unique_lock lock(mutex_);
    const std::pair range(data, size);
    is_registered_.wait(lock, [&] { return !registering_.contains(range); });
    if (auto found = registered_.find(range); found != registered_.end()) {
      ++found->second;
      return Api::kSuccess;
    }
    // Ranges take long, and several threads bring theirs at the same time.
    registering_.insert(range);
    lock.unlock();
    int error = api_.register_host(data, static_cast<size_t>(size));
    lock.lock();
    registering_.erase(range);
    if (error == Api::kSuccess) registered_.emplace(range, 1);
    is_registered_.notify_all();
    return error;
  }
  void unregister_host(std::byte* data, ByteCount size) {
    std::lock_guard lock(mutex_);
    auto found = registered_.find({data, size});
    if (found == registered_.end() || --found->second > 0) return;
    static_cast<void>(api_.unregister_host(data));
    registered_.erase(found);
  }

  /// Takes over a failed stream: its queue cannot be emptied, only waited for.
  void bury(GpuContextHandle context, GpuStreamHandle stream) {
    std::lock_guard lock(buried_mutex_);
    buried_.push_back({context, stream});
  }
  /// Whether a stream taken over, of any device, might still touch memory; lets go of the others.
  bool has_buried() {
    std::lock_guard lock(buried_mutex_);
    std::erase_if(buried_, [this](const Buried& one) {
      GpuScope<Api> scope(api_, one.context);
      int error = scope.run([&] { return api_.query_stream(one.stream); });
      if (error == Api::kNotReady) return false;
      static_cast<void>(scope.run([&] { return api_.destroy_stream(one.stream); }));
      return true;
    });
    return !buried_.empty();
  }

  /// An id that no living device has: `wanted`, or with a number behind it.
  std::string take_id(const std::string& wanted) {
    std::lock_guard lock(mutex_);
    std::string id = wanted;
    for (int suffix = 2; !ids_.insert(id).second; ++suffix)
      id = fmt::format("{}~{}", wanted, suffix);
    return id;
  }
  void give_back_id(const std::string& id) {
    std::lock_guard lock(mutex_);
    ids_.erase(id);
  }

 private:
  struct Buried {
    GpuContextHandle context;
    GpuStreamHandle stream;
  };

  const Api api_;
  std::mutex mutex_;
  std::map<std::pair<std::byte*, ByteCount>, int> registered_;  ///< by how many devices
  std::set<std::pair<std::byte*, ByteCount>> registering_;
  std::condition_variable is_registered_;
  std::set<std::string> ids_;
  std::mutex buried_mutex_;
  std::vector<Buried> buried_;
};

}  // namespace stagecoach
