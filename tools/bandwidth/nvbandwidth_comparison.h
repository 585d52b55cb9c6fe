#pragma once

#include <string>
#include <vector>

#include "tools/bandwidth/nvbandwidth_file.h"
#include "tools/bandwidth/results.h"

namespace stagecoach {

/// A figure of nvbandwidth beside ours of the same copies.
struct NvbandwidthPair {
  std::string test;
  std::string device, peer;  ///< ours: "cuda:0"; `peer` is the other end, or empty
  double theirs = 0;         ///< GB/s
  std::string their_method;
  double ours = 0;     ///< GB/s; 0: not measured
  std::string our_id;  ///< of the result; empty where there is none
  std::string our_method;
};

/// A test that has no pair, and why.
struct UnpairedTest {
  std::string test, status, why;
  int64_t values = 0;  ///< that it has
  double least = 0, most = 0;
  std::string unit;
};

/// Both tools side by side.
struct NvbandwidthComparison {
  std::string version, driver;
  std::vector<NvbandwidthPair> pairs;
  std::vector<UnpairedTest> unpaired;  ///< waived, failed, unknown, or not measured here
  std::vector<std::string> notes;
};

/// Puts what `file` says beside the results of `report`, which may be empty. GPUs are the same
/// where their PCI addresses are; where one side does not tell them, number I is cuda:I, and a note
/// says so. No test is dropped. Pure.
NvbandwidthComparison compare_with_nvbandwidth(const NvbandwidthFile& file,
                                               const BandwidthReport& report);

/// For people: figure, method, figure, method, ratio.
std::string nvbandwidth_table(const NvbandwidthComparison& comparison);

/// For scripts: `pairs`, `unpaired`, `notes`. A ratio is ours by theirs.
Json nvbandwidth_json(const NvbandwidthComparison& comparison);

}  // namespace stagecoach
