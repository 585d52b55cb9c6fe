#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"

namespace stagecoach {

// Every function of the driver table that can be told to fail.
#define STAGECOACH_FAKE_GPU_FUNCTIONS(X) \
  X(init)                                \
  X(driver_version)                      \
  X(device_count)                        \
  X(device_get)                          \
  X(device_name)                         \
  X(device_total_bytes)                  \
  X(device_attribute)                    \
  X(device_pci_address)                  \
  X(device_uuid)                         \
  X(can_access_peer)                     \
  X(retain_context)                      \
  X(release_context)                     \
  X(get_current)                         \
  X(set_current)                         \
  X(enable_peer)                         \
  X(memory_info)                         \
  X(allocate)                            \
  X(free)                                \
  X(allocate_host)                       \
  X(free_host)                           \
  X(register_host)                       \
  X(unregister_host)                     \
  X(copy_async)                          \
  X(copy_peer_async)                     \
  X(fill8_async)                         \
  X(fill16_async)                        \
  X(fill32_async)                        \
  X(create_stream)                       \
  X(destroy_stream)                      \
  X(query_stream)                        \
  X(stream_wait_event)                   \
  X(create_event)                        \
  X(destroy_event)                       \
  X(record_event)                        \
  X(query_event)                         \
  X(synchronize_event)                   \
  X(elapsed_ms)                          \
  X(load_module)                         \
  X(unload_module)                       \
  X(get_function)                        \
  X(set_function_shared_bytes)           \
  X(launch)

/// Names one function of the table.
enum class FakeGpuFunction : uint8_t {
#define STAGECOACH_FAKE_GPU_ENUMERATOR(name) name,
  STAGECOACH_FAKE_GPU_FUNCTIONS(STAGECOACH_FAKE_GPU_ENUMERATOR)
#undef STAGECOACH_FAKE_GPU_ENUMERATOR
};
inline constexpr int kFakeGpuFunctionCount = static_cast<int>(FakeGpuFunction::launch) + 1;
std::string_view fake_gpu_function_name(FakeGpuFunction function);

/// The errors the fake gives, numbered as CUDA's.
struct FakeGpuError {
  static constexpr int kInvalidValue = 1;
  static constexpr int kOutOfMemory = 2;
  static constexpr int kDeviceUnavailable = 46;
  static constexpr int kNoDevice = 100;
  static constexpr int kInvalidDevice = 101;
  static constexpr int kInvalidImage = 200;
  static constexpr int kInvalidContext = 201;
  static constexpr int kNoBinary = 209;
  static constexpr int kPeerUnsupported = 217;
  static constexpr int kInvalidHandle = 400;
  static constexpr int kNotFound = 500;
  static constexpr int kNotReady = 600;
  static constexpr int kIllegalAddress = 700;
  static constexpr int kPeerAlreadyEnabled = 704;
  static constexpr int kAlreadyRegistered = 712;
  static constexpr int kLaunchFailed = 719;
  static constexpr int kNotPermitted = 800;
  static constexpr int kSystemNotReady = 802;
};

/// How copies between two cards behave.
enum class FakePeerCopies : uint8_t { kWork, kCorrupt, kHang, kImpossible };

/// What the driver tells cards by.
enum class FakeIdentities : uint8_t {
  kNone,
  kCards,        ///< a UUID and a PCI address each
  kMigInstances  ///< of one card: a UUID each, and one PCI address
};

/// The machine that a fake driver simulates.
struct FakeGpuOptions {
  int card_count = 2;
  ByteCount memory_bytes = 32 * kMiB;  ///< a card
  ByteCount foreign_bytes = 0;         ///< of a card, taken by other programs
  bool drives_display = false;
  int64_t latency_ns = 0;       ///< of a copy, once
  double copy_bytes_per_s = 0;  ///< 0: as fast as the host
  int compute_major = 9;
  int compute_minor = 0;
  int driver_version = 13000;
  FakePeerCopies peer_copies = FakePeerCopies::kWork;
  int64_t peer_corruption_interval = 1;  ///< of kCorrupt: copies of which the last one is wrong
  FakeIdentities identities = FakeIdentities::kNone;
};

/// A function that "runs on the card": gets its arguments as 64-bit slots and returns a driver
/// error, which, when it is not 0, is the context's for good.
struct FakeGpuKernel {
  std::string name;
  int argument_count = 0;
  int (*function)(void* user, const uint64_t* arguments) = nullptr;
  void* user = nullptr;
};

/// First bytes of a module image that the fake accepts; one that names no card's architecture
/// (kFakeForeignModule) has no binary for any.
inline constexpr std::string_view kFakeModule = "fake gpu module";
inline constexpr std::string_view kFakeForeignModule = "fake gpu module for another card";

}  // namespace stagecoach
