#pragma once

#include <cstdlib>
#include <string>

namespace stagecoach {

/// What STAGECOACH_TEST_DEVICES says, `cuda:0` say, or else `otherwise`: the tests that ask for it
/// compare with references, whatever computes (tests/hardware/prove_card.sh, part models).
inline std::string test_devices(const char* otherwise) {
  const char* text = std::getenv("STAGECOACH_TEST_DEVICES");
  return text == nullptr ? otherwise : text;
}

}  // namespace stagecoach
