#pragma once

#include <atomic>

#include "core/bytes.h"
#include "core/label.h"

namespace stagecoach {

/// Hears of memory that host threads read and write. Thread rule: any thread.
class HostAccessObserver {
 public:
  virtual ~HostAccessObserver() = default;
  virtual void on_host_access(const void* data, ByteCount size_bytes, bool writes,
                              const Label& label) = 0;
};

namespace internal {
/// Null unless somebody checks.
extern std::atomic<HostAccessObserver*> host_access_observer;
}  // namespace internal

/// Makes `observer` (null: nobody) the one that hears of accesses; it must outlive them.
void set_host_access_observer(HostAccessObserver* observer);

/// What host work calls before it touches memory that devices reach, so that a race with them can
/// be noticed. Costs a load when nobody checks. Thread rule: any thread.
inline void note_host_read(const void* data, ByteCount size_bytes, const Label& label) {
  HostAccessObserver* observer = internal::host_access_observer.load(std::memory_order_acquire);
  if (observer != nullptr) observer->on_host_access(data, size_bytes, false, label);
}
inline void note_host_write(const void* data, ByteCount size_bytes, const Label& label) {
  HostAccessObserver* observer = internal::host_access_observer.load(std::memory_order_acquire);
  if (observer != nullptr) observer->on_host_access(data, size_bytes, true, label);
}

}  // namespace stagecoach
