#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hal/hal.h"

namespace stagecoach {

/// What a test of the suite may need beyond a device with streams and copies.
enum class Feature {
  kPeer,         ///< two devices that can copy to each other
  kTestKernels,  ///< the executable of test kernels
  kMath,         ///< Ops
  kAsyncFailure  ///< a bad token id fails the stream instead of being undefined
};

/// One way to open devices for the suite. Every entry of `conformance_backends` runs every test.
struct ConformanceBackend {
  std::string name;
  /// Opens that many devices; memory_bytes of each is at least kConformanceMemoryBytes.
  std::function<Result<std::vector<std::unique_ptr<Device>>>(int count)> open;
  ExecutableImage test_kernels;
  /// What this backend cannot do, with the reason that a skipped test prints.
  std::map<Feature, std::string> cannot;
};

/// Memory that the suite needs on a device; tests of exhaustion ask for what there is.
inline constexpr ByteCount kConformanceMemoryBytes = 16 * kMiB;

/// All backends of this program, each variant apart.
std::vector<ConformanceBackend> conformance_backends();

}  // namespace stagecoach
