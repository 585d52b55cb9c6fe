#pragma once

#include <span>
#include <string>

#include "backends/gpu/gpu_types.h"
#include "core/status.h"
#include "hal/device_info.h"
#include "hal/device_spec.h"

namespace stagecoach {

// Besides by its number, which changes with CUDA_VISIBLE_DEVICES and from one container to the
// next, a device string may name a card by UUID (`cuda:GPU-8f3c…`, `cuda:MIG-…`, or the beginning
// of one) or by PCI address (`cuda:0000:65:00.0`), each also with `xK` behind. Neither can be taken
// for a number or for `all`.

/// Whether `spec` names a card in one of these ways.
bool names_card(const DeviceSpec& spec);

/// Such a `spec` with the number of the card in place of the name. `cards` are all that there are,
/// with their numbers in DeviceInfo::index. Errors: invalid argument for what is no UUID or PCI
/// address or fits several cards; unavailable, listing what there is, where no card has it.
Result<DeviceSpec> number_card(const DeviceSpec& spec, std::span<const DeviceInfo> cards);

/// The same for any machine: the first card stands for whichever is named; a spec that names none
/// stays as it is. Errors: what no machine could answer.
Result<DeviceSpec> name_first_card(const DeviceSpec& spec);

/// "GPU-8f3c…" or, of an instance of a card, which its `name` tells, "MIG-…". Drivers of AMD's
/// cards keep the digits themselves in `uuid`.
std::string gpu_uuid_text(const GpuUuid& uuid, const std::string& name);

}  // namespace stagecoach
