#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace stagecoach {

/// A card as the fake management library shows it.
struct FakeManagedCard {
  std::string uuid;         ///< NVML finds it by this
  std::string pci_address;  ///< or by this; ROCm SMI by this alone
  std::string mig_parent;   ///< UUID of another of the cards, whose instance this is
  unsigned generation = 4, max_generation = 4, width = 16, max_width = 16;
  unsigned replays = 0;
  unsigned core_clock_mhz = 1980, power_mw = 120'000, power_limit_mw = 700'000, temperature_c = 40;
  unsigned busy_percent = 0;
  unsigned long long throttle_bits = 0, throttled_ns = 0;
  unsigned long long memory_bytes = 1ull << 36, bar_bytes = 1ull << 37;
  bool has_mig = false;
  std::vector<unsigned> processes;
};

/// The machine that the library shows; tests set it before they ask. Both vendors' functions are in
/// one library.
struct FakeManagement {
  int start_error = 0;                 ///< of nvmlInit_v2 and rsmi_init
  std::set<std::string> unsupported;   ///< functions that answer "not supported"; "*": all of cards
  std::vector<FakeManagedCard> cards;  ///< in the library's own order
};

/// The library's symbol that takes the machine, which stays the caller's.
inline constexpr const char* kFakeManagementSymbol = "fake_management_use";
using FakeManagementUse = void (*)(const FakeManagement*);

}  // namespace stagecoach
