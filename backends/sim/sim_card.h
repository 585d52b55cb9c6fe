#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/bytes.h"
#include "core/status.h"

namespace stagecoach {

/// What a simulation knows of a card. Rates are what long runs reach, not what data sheets call
/// peak, unless `source` says otherwise. Plain data.
struct SimCard {
  std::string_view name;   ///< "rtx4090": in device strings
  std::string_view title;  ///< for people
  ByteCount memory_bytes = 0;
  double matmul_flop_per_s = 0;  ///< 16-bit products summed in fp32
  double memory_bytes_per_s = 0;
  double link_bytes_per_s = 0;    ///< each direction, pinned host memory
  double duplex_bytes_per_s = 0;  ///< both directions together
  std::string_view source;        ///< of every number
};

/// The presets of the command's contract.
std::span<const SimCard> sim_cards();

/// The preset called `name`; not found, with the names there are.
Result<SimCard> find_sim_card(std::string_view name);

}  // namespace stagecoach
