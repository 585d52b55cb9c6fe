#pragma once

#include <vector>

#include "core/bytes.h"
#include "core/status.h"
#include "hal/device_spec.h"

namespace stagecoach {

/// Most logical devices of one card.
inline constexpr int kMaxLogicalDevices = 16;

/// One logical device as a device string asks for it.
struct GpuDeviceRequest {
  int ordinal = 0;                ///< the card
  int part = 0;                   ///< which of `part_count` logical devices of it
  int part_count = 1;             ///< they share the card's memory, copy engines and compute units
  ByteCount memory_bytes = 0;     ///< cap of this logical device; 0: not given
  int index = 0;                  ///< DeviceInfo::index
  bool use_libraries = true;      ///< the vendor's, for what they compute faster than our kernels
  bool fp16_accumulate = false;   ///< fp16 products may be summed in fp16
  bool is_deterministic = false;  ///< every op gives the same bits every run
};

/// `cuda:I`, `cuda:all`, `cuda:IxK`, each with `[memory=…,libraries=on|off,fp16_accumulate=on|off]`
/// (docs/cuda_backend.md), on a machine with `card_count` cards. Errors name the element and what
/// is allowed; an absent card is unavailable.
Result<std::vector<GpuDeviceRequest>> parse_gpu_options(const DeviceSpec& spec, int card_count);

}  // namespace stagecoach
