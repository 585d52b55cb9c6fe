#pragma once

#include "core/status.h"
#include "hal/copy.h"
#include "hal/device.h"
#include "hal/executable.h"

namespace stagecoach::internal {

/// Whether `view` names at least one byte inside a buffer; the error calls it `role`.
Status validate_view(const BufferView& view, std::string_view role);

/// Whether `view` is memory of `device` itself; the error calls it `role`.
Status validate_device_memory(const BufferView& view, const Device& device, std::string_view role);

/// Checks a request against its rules in copy.h and executable.h; pure.
Status validate_copy(const CopyRequest& request, Device& device);
Status validate_fill(const FillRequest& request, Device& device);
Status validate_launch(const LaunchRequest& request, Device& device);

/// Whether streams of `waiter` can wait for events of `owner`: same backend, same decoration.
bool share_events(const Device& waiter, const Device& owner);

}  // namespace stagecoach::internal
