#include "backends/sim/sim_card.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <string>
#include <vector>

#include "core/suggest.h"

namespace stagecoach {

namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;
/// Share of the peak that large products reach: 770 to 800 of 989 TFLOP/s were measured on an H200,
/// and consumer cards, whose clocks hold, come closer.
constexpr double kDataCenterShare = 0.79;
constexpr double kConsumerShare = 0.85;
/// Pinned copies: 55.5 up, 55.3 down, 96.8 both GB/s measured behind PCIe 5.0 x16. For PCIe 4.0 x16
/// a little less than half is assumed.
constexpr double kPcie5 = 55.4 * kGiga, kPcie5Duplex = 96.8 * kGiga;
constexpr double kPcie4 = 26.0 * kGiga, kPcie4Duplex = 47.0 * kGiga;

constexpr SimCard kCards[] = {
    {"rtx3090", "GeForce RTX 3090", 24 * kGiB, 71.0 * kTera* kConsumerShare, 936 * kGiga, kPcie4,
     kPcie4Duplex, "NVIDIA Ampere GA102 whitepaper: 71 TFLOP/s bf16 with fp32 sums, 936 GB/s"},
    {"rtx4090", "GeForce RTX 4090", 24 * kGiB, 165.2 * kTera* kConsumerShare, 1008 * kGiga, kPcie4,
     kPcie4Duplex, "NVIDIA Ada whitepaper: 165.2 TFLOP/s bf16 with fp32 sums, 1008 GB/s"},
    {"rtx5090", "GeForce RTX 5090", 32 * kGiB, 209.5 * kTera* kConsumerShare, 1792 * kGiga, kPcie5,
     kPcie5Duplex, "NVIDIA RTX Blackwell whitepaper: 209.5 TFLOP/s bf16 with fp32 sums, 1792 GB/s"},
    {"a100", "A100 SXM 80 GB", 80 * kGiB, 312.0 * kTera* kDataCenterShare, 2039 * kGiga, kPcie4,
     kPcie4Duplex, "NVIDIA A100 data sheet: 312 TFLOP/s bf16, 2039 GB/s"},
    {"a800", "A800 SXM 80 GB", 80 * kGiB, 312.0 * kTera* kDataCenterShare, 2039 * kGiga, kPcie4,
     kPcie4Duplex, "as the A100, whose link between cards alone is slower"},
    {"h100", "H100 SXM 80 GB", 80 * kGiB, 989.0 * kTera* kDataCenterShare, 3350 * kGiga, kPcie5,
     kPcie5Duplex, "NVIDIA H100 data sheet: 989 TFLOP/s bf16 dense, 3350 GB/s"},
    {"h200", "H200 SXM 141 GB", 139 * kGiB, 780.0 * kTera, 4300 * kGiga, kPcie5, kPcie5Duplex,
     "measured: 770 to 800 TFLOP/s on 8192-sized products, 4.3 TB/s device copies"},
    {"rx7900xtx", "Radeon RX 7900 XTX", 24 * kGiB, 122.8 * kTera* kConsumerShare, 960 * kGiga,
     kPcie4, kPcie4Duplex, "AMD product page: 122.8 TFLOP/s fp16, 960 GB/s; not measured here"},
    {"w7800", "Radeon PRO W7800", 32 * kGiB, 90.5 * kTera* kConsumerShare, 576 * kGiga, kPcie4,
     kPcie4Duplex, "AMD product page: 90.5 TFLOP/s fp16, 576 GB/s; not measured here"},
};

}  // namespace

std::span<const SimCard> sim_cards() {
  return kCards;
}

Result<SimCard> find_sim_card(std::string_view name) {
  std::vector<std::string> names;
  for (const SimCard& card : kCards) {
    if (card.name == name) return card;
    names.emplace_back(card.name);
  }
  return invalid_argument(
      fmt::format("'{}' is no simulated card; there are {}", name, fmt::join(names, ", ")));
}

}  // namespace stagecoach
