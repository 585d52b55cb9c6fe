#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/bytes.h"

namespace stagecoach {

/// One function on the way from the root port to a device, with the link above it.
struct PciHop {
  std::string address;        ///< "0000:3b:00.0"
  double speed_gt_per_s = 0;  ///< now; 0: not known
  double max_speed_gt_per_s = 0;
  int width = 0;  ///< lanes now; 0: not known
  int max_width = 0;
};

/// How a PCI device is attached, as sysfs tells. Plain data.
struct PciPath {
  std::string host_bridge;    ///< "pci0000:3a"
  std::vector<PciHop> hops;   ///< root port first, the device last
  int numa_node = -1;         ///< -1: unknown or none
  std::string iommu_type;     ///< "identity", "DMA", "DMA-FQ"; empty: none or unknown
  ByteCount largest_bar = 0;  ///< bytes; what the host can map of the device's memory
  /// Whether a bridge of the way sends copies between devices up to the host (ACS); unknown but for
  /// root, whom the kernel shows the bits.
  std::optional<bool> acs_redirects;
  std::string near_threads;  ///< "0-15,64": processors beside it; empty: unknown, or all

  /// What the slowest link of the way carries each way, after encoding; 0 where no hop tells.
  double bytes_per_s() const;
  /// The same at the highest speed and width of each hop.
  double max_bytes_per_s() const;
  /// Keeps the fastest of both readings: links save power between copies.
  void keep_fastest(const PciPath& other);
};

/// Payload of one link each way: transfers a second times lanes, less the encoding (8b/10b up to
/// 5 GT/s, 128b/130b up to 32, FLIT of 242 in 256 bytes above). 0 where either is not known. Pure.
double pci_link_bytes_per_s(double speed_gt_per_s, int width);

/// Reads the way to the device at `address` under `sysfs` (a folder as /sys); nothing where it is
/// not listed. What a file does not tell stays unknown.
std::optional<PciPath> read_pci_path(const std::string& address, const std::string& sysfs = "/sys");

/// What is between two devices, in the words of nvidia-smi: "PIX" one switch, "PXB" several
/// bridges, "PHB" a host bridge, "NODE" a NUMA node, "SYS" the link between nodes. Pure.
const char* pci_relation(const PciPath& one, const PciPath& other);

}  // namespace stagecoach
