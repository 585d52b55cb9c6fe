#pragma once

#include "core/bytes.h"
#include "core/status.h"
#include "memory/host_limits.h"
#include "memory/host_state.h"

namespace stagecoach {

/// Host memory of a run, before anything is allocated.
struct HostNeed {
  HostStateBytes state;
  ByteCount boundaries = 0;  ///< between stages, of all micro-batches
  ByteCount staging = 0;     ///< batches and losses
  ByteCount devices = 0;     ///< of devices that are mocks: theirs is the host's

  ByteCount total() const { return state.total() + boundaries + staging + devices; }
};

/// Ok where the host has `need`; else resource exhausted, with what is needed, what there is and by
/// what limit, and what to change. Pure.
Status check_host_need(const HostNeed& need, const HostLimits& limits);

}  // namespace stagecoach
