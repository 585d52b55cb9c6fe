#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/status.h"

namespace stagecoach {

/// A test of nvbandwidth. Plain data.
struct NvbandwidthTest {
  std::string name;         ///< "host_to_device_memcpy_ce"
  std::string status;       ///< as written: "Passed", "Waived", "Error", "Running", "Not Found"
  std::string reason;       ///< of an error; empty where the file has none
  std::string description;  ///< "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)"
  std::string unit;         ///< "GB/s" or "ns", as the description says
  /// By row and column; nothing where it is "N/A". Tests that measure both directions between
  /// devices write three tables below each other: one direction, the other, the sum.
  std::vector<std::vector<std::optional<double>>> matrix;

  bool has_passed() const { return status == "Passed"; }
  bool is_waived() const { return status == "Waived"; }
};

/// What `nvbandwidth -j` writes, by the source of versions 0.5 (the first that does) to 0.8. Plain
/// data.
struct NvbandwidthFile {
  std::string version, driver;  ///< empty where they are not told
  std::vector<std::string>
      devices;                     ///< "0: NVIDIA H200 (00000000:1B:00): (host)"; since 0.5 or 0.6
  std::vector<std::string> notes;  ///< its error and its warning
  std::vector<NvbandwidthTest> tests;
};

/// Reads it. A test that is listed again with how it ended, as those are that fail, is one test.
/// Refused, by `source`, place, value found and allowed: what has no tests, fields of other types,
/// cells that are no number from 0 to 1e9 or "N/A", tables of more than 256 x 768 or of uneven
/// rows.
Result<NvbandwidthFile> read_nvbandwidth(const Json& json, const std::string& source);

/// The PCI address "0000:1b:00" that the text of a device has in brackets, in lower case; empty
/// where there is none. Pure.
std::string nvbandwidth_pci_address(const std::string& device);

}  // namespace stagecoach
