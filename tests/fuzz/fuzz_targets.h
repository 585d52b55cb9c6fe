#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace stagecoach {

/// A reader of files that strangers wrote. `run` feeds it any bytes; it aborts when what the reader
/// accepts breaks a promise of its header. It never keeps state from one input to the next.
struct FuzzTarget {
  const char* name;  ///< of the executable fuzz_<name> and the folder tests/fuzz/corpus/<name>
  void (*run)(std::span<const uint8_t> input);
};

std::span<const FuzzTarget> fuzz_targets();

}  // namespace stagecoach
