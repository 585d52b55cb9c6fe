#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/json.h"

namespace stagecoach {

/// A program that uses a card.
struct CardProcess {
  int64_t id = 0;  ///< as the management library counts: in a container not as /proc does
  std::optional<ByteCount> memory_bytes;
};

/// What a management library (NVML, ROCm SMI) tells of a card at one moment. What it does not tell
/// is unknown. Plain data.
struct CardState {
  std::string source;  ///< the library
  std::optional<int64_t> pcie_generation, max_pcie_generation, pcie_width, max_pcie_width;
  std::optional<int64_t> replays;  ///< of packets on the link, since the card was started
  std::optional<int64_t> core_clock_mhz, max_core_clock_mhz, memory_clock_mhz, max_memory_clock_mhz;
  std::optional<double> power_w, power_limit_w, temperature_c, busy_percent;
  std::optional<std::vector<std::string>> throttle_reasons;  ///< that slow it down right now
  std::optional<int64_t> throttled_ns;  ///< by power or heat, since the card was started
  std::optional<bool> has_ecc, is_persistent, has_mig;
  std::optional<ByteCount> bar_bytes, memory_bytes;  ///< that the host can map; that there are
  std::string mig_parent;                            ///< UUID; empty: no instance
  std::optional<std::vector<CardProcess>> processes;

  /// Whether the host can map all of its memory: resizable BAR.
  std::optional<bool> maps_all_memory() const;
};

/// As JSON: what is unknown is null.
Json card_state_json(const CardState& state);

/// For people, one line: clocks, power, temperature and whatever is out of the ordinary.
std::string card_state_text(const CardState& state);

}  // namespace stagecoach
