#include "backends/gpu/gpu_error_remedy.h"

namespace stagecoach {

const char* gpu_error_remedy(int error) {
  constexpr int kDeviceUnavailable = 46, kNotLicensed = 102, kNotPermitted = 800;
  constexpr int kSystemNotReady = 802, kCompatNotSupported = 804, kUnknown = 999;
  switch (error) {
    case kDeviceUnavailable:
      return "another program holds the card for itself, or its compute mode forbids programs: see "
             "nvidia-smi, and set it to default with nvidia-smi -c 0";
    case kNotLicensed:
      return "a virtual card without a licence does not compute: check the guest's licence server";
    case kNotPermitted:
      return "this process may not use the card that way: give the container its devices "
             "(/dev/nvidia*), and where memory is shared across nodes an IMEX channel "
             "(/dev/nvidia-caps-imex-channels) of a running nvidia-imex; one node needs none";
    case kSystemNotReady:
      return "the fabric between the cards is not ready: start the fabric manager (systemctl start "
             "nvidia-fabricmanager, of the driver's version) and wait until nvidia-smi -q says "
             "that "
             "the fabric's state is completed";
    case kCompatNotSupported:
      return "this card takes no compatibility libraries: remove cuda-compat from the library "
             "path, "
             "or update the driver";
    case kUnknown:
      return "the driver gives no reason: look for it with dmesg; reloading the module nvidia_uvm "
             "helps after suspend";
    default:
      return nullptr;
  }
}

}  // namespace stagecoach
