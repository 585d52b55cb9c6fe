#pragma once

#include <cstdint>

#include "backends/gpu/gpu_stream_cell.h"
#include "core/status.h"

namespace stagecoach {

/// Blocks until `mark` is passed or its stream fails. The driver's own blocking calls cannot be
/// interrupted, so this asks and sleeps in turn: a thread that waits for a hanging card still wakes
/// when its stream is abandoned (hal_contract.md, E4).
Status wait_for_mark(GpuMark& mark);

/// A stream that can be asked whether its card has failed. Registered while it lives.
/// Thread rule: `probe` from any thread.
class GpuProbe {
 public:
  GpuProbe(const GpuProbe&) = delete;
  GpuProbe& operator=(const GpuProbe&) = delete;
  /// Takes note of a failure of the card; never blocks and takes no lock of the HAL.
  virtual void probe() = 0;

 protected:
  GpuProbe() = default;
  ~GpuProbe() = default;
  /// For derived constructors and destructors, as their last and first step.
  void enter_directory();
  void leave_directory();
};

/// Probes every stream of every GPU backend: whoever waits behind a lost card learns of it here.
void probe_gpu_streams();

}  // namespace stagecoach
