#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/status.h"

namespace stagecoach {

/// What one line of metrics.jsonl says of an iteration.
struct IterationMetrics {
  int64_t iteration = 0;  ///< updates done, this one included: the first line says 1
  double loss = 0;        ///< mean over the targets of this iteration, nats per token
  int64_t tokens = 0;     ///< targets trained on since the start of the run, ignored ones left out
  double tokens_per_s = 0;  ///< targets / time of the iterations since the last line; no evaluation
                            ///< or saving time
  double grad_norm = 0;     ///< over all parameters, before clipping
  double lr = 0;            ///< of this iteration's update
  double bubble = 0;        ///< idle share of the compute lanes in this iteration
  std::optional<double> loss_scale;   ///< of fp16: that this iteration computed with
  std::optional<double> router_loss;  ///< of experts that are kept balanced, see StepLoss
  bool skipped = false;               ///< of fp16: gradients overflowed, no update was made
};

/// The line as an object with exactly these keys; the last three where they mean something.
Json iteration_metrics_to_json(const IterationMetrics& metrics);
/// {"iteration", "validation_loss"}: nats per token over the validation tokens evaluated.
Json validation_metrics_to_json(int64_t iteration, double validation_loss);

/// Appends to a file of JSON lines. Each line is handed to the system whole and at once, so that a
/// reader never sees half of one and a crash loses none.
/// Thread rule: one thread at a time.
class MetricsWriter {
 public:
  /// Opens `path`. Lines of iterations after `last_iteration` are dropped: they belong to work that
  /// an interrupted run did after its last checkpoint. 0 starts an empty file.
  static Result<MetricsWriter> open(const std::string& path, int64_t last_iteration);
  MetricsWriter(MetricsWriter&& other) noexcept;
  MetricsWriter& operator=(MetricsWriter&& other) noexcept;
  ~MetricsWriter();

  /// The iteration of the last validation line that `open` found and kept; 0 for none.
  int64_t last_validation_iteration() const { return last_validation_iteration_; }
  /// Errors: io, naming the file and what to do, also when the disk is full or when `path` is not
  /// this file any more.
  Status write(const Json& record);

 private:
  MetricsWriter(int descriptor, std::string path, int64_t last_validation_iteration)
      : descriptor_(descriptor),
        path_(std::move(path)),
        last_validation_iteration_(last_validation_iteration) {}
  Status check_place() const;

  int descriptor_ = -1;
  std::string path_;
  int64_t last_validation_iteration_ = 0;
};

/// Middle value of `values` (the upper one of two); 0 when there are none.
double median(std::vector<double> values);

}  // namespace stagecoach
