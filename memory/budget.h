#pragma once

#include <string>
#include <string_view>

#include "core/bytes.h"
#include "core/status.h"
#include "memory/host_limits.h"
#include "memory/host_state.h"

namespace stagecoach {

/// Host memory that a run leaves to everything else: its own threads, files and traces, and other
/// programs.
inline constexpr ByteCount kHostReserve = 256 * kMiB;

/// Below so much free host memory a run stops by itself: less, and the system might kill it.
inline constexpr ByteCount kHostFloor = kHostReserve / 4;

/// Host memory of a run, before anything is allocated.
struct HostNeed {
  HostStateBytes state;
  ByteCount boundaries = 0;   ///< between stages, of all micro-batches
  ByteCount staging = 0;      ///< batches and losses
  ByteCount devices = 0;      ///< of devices that are mocks: theirs is the host's
  ByteCount save_copies = 0;  ///< of what updates overwrite while it is saved

  ByteCount total() const { return state.total() + boundaries + staging + devices + save_copies; }
};

/// What to change where the host has too little, in words of a configuration.
inline constexpr std::string_view kTrainAdvice =
    "Use fewer or smaller micro-batches (train.microbatches, train.batch, data.sequence), a "
    "smaller model, model.dtype = \"bf16\" or adapters (model.lora, with model.base = \"mapped\")";

/// What to tell people about a run of whose host memory something that travels could not be pinned;
/// empty when all could.
/// Pure.
std::string describe_pinning(const Pinning& pinning, const HostLimits& limits);

/// Ok where the host has `need` and kHostReserve beside it; else resource exhausted, with what is
/// needed, what there is and by what limit, and what to change, which `advice` says. Pure.
Status check_host_need(const HostNeed& need, const HostLimits& limits,
                       std::string_view advice = kTrainAdvice);

}  // namespace stagecoach
