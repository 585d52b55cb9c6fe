#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tools/bandwidth/measurement.h"

namespace stagecoach {

/// When the data of copies is compared.
enum class VerifyMode : uint8_t {
  kEnd,   ///< of the last repetition
  kEach,  ///< of every repetition
  kOff
};

/// How measurements are repeated.
struct RepetitionOptions {
  int repetitions = 7;                 ///< at least
  int64_t min_time_ns = 300'000'000;   ///< that the batches of a measurement take together
  int64_t batch_time_ns = 25'000'000;  ///< repeats are chosen so that a batch takes about this
  int64_t warm_up_limit_ns = 2'000'000'000;  ///< afterwards it counts as not settled
  bool interleaves = true;                   ///< measurements of a group take turns at random
  uint64_t seed = 1;
  double cv_limit = 0.05;
  int most_reruns = 3;                  ///< of noisy measurements
  int64_t timeout_ns = 60'000'000'000;  ///< of one measurement
  VerifyMode verify = VerifyMode::kEnd;
  std::function<bool()> is_cancelled;  ///< asked between batches; may be empty
};

/// A group of measurements that are compared with each other.
using MeasurementGroup = std::vector<std::unique_ptr<Measurement>>;

/// Runs a group: repeats a batch are chosen by doubling, warm-up batches are dropped until three
/// agree within 2 %, then the measurements take turns in random order. One that fails, times out or
/// brings wrong data ends; the others go on. A record each, in their order.
std::vector<MeasurementRecord> run_group(const MeasurementGroup& group,
                                         const RepetitionOptions& options);

}  // namespace stagecoach
