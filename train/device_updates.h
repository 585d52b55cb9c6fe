#pragma once

#include <memory>
#include <vector>

#include "core/status.h"
#include "core/task_pool.h"
#include "core/trace.h"
#include "hal/device.h"
#include "hal/host_worker.h"
#include "memory/host_state.h"
#include "scheduler/network.h"
#include "scheduler/share_choice.h"
#include "train/device_updater.h"
#include "train/update_kernel.h"

namespace stagecoach {

/// The devices' part of the updates of a run: which blocks they update, and for each device an
/// updater with a queue of its own, since an update returns when it is done.
/// Thread rule: that of the trainer; updaters belong to their queues.
class DeviceUpdates {
 public:
  /// Most elements of a piece: a copy of it is long beside what it costs to submit, and two of them
  /// are small beside a stage.
  static constexpr int64_t kPieceElements = 1024 * 1024;

  /// Device memory that it takes on each device, in bytes. Pure.
  static ByteCount bytes(const Network& network);
  /// Chooses blocks for `share` of the trained elements (see share_updates) and takes the memory.
  /// `devices` and `pool` must outlive it. Errors: resource exhausted; unimplemented for devices
  /// whose time is simulated.
  static Result<std::unique_ptr<DeviceUpdates>> create(const std::vector<Device*>& devices,
                                                       const Network& network, HostState& state,
                                                       UpdateRule rule, double share,
                                                       TaskPool& pool);

  /// Host memory that a step of a run without them touches, and what it would send if devices made
  /// all the updates that they can; nothing where they can make none.
  static UpdateTraffic traffic(const Network& network, HostState& state, UpdateRule rule);

  /// Per block: the position of its device; -1: the host updates it.
  const std::vector<int>& updating_devices() const { return updating_devices_; }
  /// What that is of the trained elements.
  double share() const { return share_; }
  std::vector<DeviceUpdater*> updaters() const;
  std::vector<HostQueue*> queues() const;
  /// Of all updaters.
  std::vector<Stream*> streams() const;
  /// The first failure of a queue.
  Status status() const;
  /// Updates from now on are slices of `process`, a device's on track `first_track` + its position.
  void set_trace(Trace& trace, int process, int first_track);

 private:
  /// The queue's jobs use the updater, so it goes first.
  struct Part {
    std::unique_ptr<DeviceUpdater> updater;
    std::unique_ptr<HostWorker> queue;
  };
  DeviceUpdates() = default;
  void choose(const Network& network, HostState& state, UpdateRule rule, double share, int devices);

  std::vector<int> updating_devices_;
  double share_ = 0;
  std::vector<Part> parts_;  ///< per device
};

}  // namespace stagecoach
