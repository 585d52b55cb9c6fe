#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/task_pool.h"
#include "hal/device.h"
#include "tools/bandwidth/measurement.h"

namespace stagecoach {

/// How direct copies are tried before they are trusted.
struct PeerTrial {
  ByteCount most_bytes = 0;            ///< of one copy; larger sizes are left out
  ByteCount budget_bytes = 0;          ///< a size: fewer rounds where they would copy more
  int64_t timeout_ns = 0;              ///< of all of it
  uint64_t seed = 1;                   ///< of the bytes
  std::function<bool()> is_cancelled;  ///< may be empty
};

/// Whether direct copies from one device to another bring the right bytes. Drivers have answered
/// "success" to copies that lost or changed some: behind an IOMMU that translates, on cards without
/// the hardware for it. So before anything is timed, small copies (1 byte, 4 KiB, 1 MiB, 64 MiB)
/// are made many times at odd offsets into poisoned memory, and what arrived is compared, with what
/// lies around it, as the host reads it back and as the target's own copy of it shows it. Thread
/// rule: one thread.
class PeerProof {
 public:
  /// Devices and pool must outlive it. Takes nothing yet.
  PeerProof(Device& source, Device& target, PeerTrial trial, TaskPool& pool);

  /// Proves it the first time; afterwards says at once what came of it. Unavailable where the
  /// driver does not let the devices reach each other; data loss, "unsafe", where bytes arrived
  /// wrong; deadline exceeded; the devices' errors.
  Status run();

  int64_t copies() const { return copies_; }
  int64_t duration_ns() const { return duration_ns_; }
  /// Bytes compared so far, and those that were wrong.
  const DataCheck& check() const { return check_; }

 private:
  struct Memory;

  Status prove();
  Status reach() const;
  Status try_size(Memory& memory, ByteCount size, int64_t deadline_ns);
  Status try_once(Memory& memory, ByteCount size, int64_t round, int64_t deadline_ns);
  Status compare(Memory& memory, ByteCount size, ByteCount offset, const char* how);

  Device& source_;
  Device& target_;
  const PeerTrial trial_;
  TaskPool& pool_;
  std::optional<Status> outcome_;
  int64_t copies_ = 0, duration_ns_ = 0;
  DataCheck check_;
};

}  // namespace stagecoach
