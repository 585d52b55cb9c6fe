#pragma once

namespace stagecoach {

/// What an optimizer remembers of every parameter's gradients.
struct MomentOptions {
  int count = 2;  ///< 0 to 2 numbers a parameter
};

}  // namespace stagecoach
