#pragma once

namespace stagecoach {

/// What to do about a driver's error with which a card does not start, where that is known better
/// than by the driver's own words; null otherwise. HIP gives none of these numbers.
const char* gpu_error_remedy(int error);

}  // namespace stagecoach
