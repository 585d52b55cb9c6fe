#include "tools/bandwidth/sampler.h"

#include <algorithm>
#include <fmt/format.h>
#include <random>

#include "core/clock.h"

namespace stagecoach {

namespace {

/// A measurement under way.
class SampledMeasurement {
 public:
  SampledMeasurement(Measurement& measurement, const RepetitionOptions& options)
      : measurement_(measurement), options_(options) {
    record_.info = measurement.info();
    record_.samples.resize(record_.info.quantities.size());
  }

  bool is_running() const { return is_running_; }
  MeasurementRecord take() { return std::move(record_); }

  /// Prepares, finds the repeats of a batch and warms up.
  void begin() {
    if (is_cancelled()) return note_interruption();
    int64_t start_ns = RealClock::instance().now_ns();
    Status prepared = measurement_.prepare();
    record_.info = measurement_.info();
    is_running_ = take_over(prepared) && calibrate() && warm_up();
    used_ns_ += RealClock::instance().now_ns() - start_ns;
  }

  /// One repetition that counts.
  void repeat() {
    if (is_cancelled()) {
      is_running_ = false;
      return note_interruption();
    }
    int64_t start_ns = RealClock::instance().now_ns();
    bool is_last = repetitions_ + 1 >= options_.repetitions &&
                   measured_ns_ + last_batch_ns_ >= options_.min_time_ns;
    bool verifies = options_.verify == VerifyMode::kEach ||
                    (options_.verify == VerifyMode::kEnd && is_last && record_.check.bytes == 0);
    is_running_ = measure(verifies);
    used_ns_ += RealClock::instance().now_ns() - start_ns;
    if (is_running_ && is_complete()) is_running_ = is_worth_more();
  }

  /// Fills in statistics and flags.
  void finish() {
    for (const std::vector<double>& samples : record_.samples) {
      record_.statistics.push_back(summarize(samples));
    }
    Json details = measurement_.details();
    if (details.is_object()) {
      for (const auto& [name, value] : details.members()) record_.info.params[name] = value;
    }
    if (!record_.is_ok()) return;
    for (SampleFlag flag : shape_flags(record_.samples.front(), options_.cv_limit)) {
      record_.add_flag(flag);
    }
    constexpr double kPlausible = 1.02;
    double limit = record_.info.limit;
    if (limit > 0 && record_.median() > kPlausible * limit) {
      record_.add_flag(SampleFlag::kImplausible);
    }
  }

 private:
  int64_t deadline_ns() const {
    return RealClock::instance().now_ns() + options_.timeout_ns - used_ns_;
  }

  bool is_cancelled() const { return options_.is_cancelled && options_.is_cancelled(); }

  /// What was taken until then counts.
  void note_interruption() {
    if (record_.is_ok()) return record_.add_flag(SampleFlag::kInterrupted);
    record_.status = MeasurementStatus::kNotRun;
    record_.reason = "interrupted";
  }

  /// Whether `status` lets the measurement go on; else says in the record why not.
  bool take_over(const Status& status) {
    if (status.is_ok()) return true;
    record_.reason = status.to_string();
    switch (status.code()) {
      case StatusCode::kResourceExhausted:
      case StatusCode::kUnimplemented:
      case StatusCode::kUnavailable:
        record_.status = MeasurementStatus::kSkipped;
        record_.reason = status.message();
        break;
      case StatusCode::kDeadlineExceeded:
        record_.status = MeasurementStatus::kTimeout;
        break;
      case StatusCode::kDataLoss:
        record_.status = MeasurementStatus::kMismatch;
        break;
      default:
        record_.status = MeasurementStatus::kFailed;
    }
    return false;
  }

  bool try_batch(Batch& batch) {
    if (is_cancelled()) {
      note_interruption();
      return false;
    }
    Result<Batch> result = measurement_.run(record_.repeats, deadline_ns());
    if (!take_over(result.status())) return false;
    batch = std::move(*result);
    last_batch_ns_ = std::max<int64_t>(1, batch.duration_ns);
    return true;
  }

  /// Repeats grow until a batch takes about what it should.
  bool calibrate() {
    constexpr int kMostTries = 24;
    constexpr double kEnough = 0.8, kMostGrowth = 16;
    record_.repeats = 1;
    Batch batch;
    for (int turn = 0; turn < kMostTries; ++turn) {
      if (!try_batch(batch)) return false;
      double factor =
          static_cast<double>(options_.batch_time_ns) / static_cast<double>(last_batch_ns_);
      if (factor * kEnough <= 1) return true;
      auto wanted = static_cast<double>(record_.repeats) * std::min(factor, kMostGrowth) + 0.5;
      int64_t next = std::min(std::max(record_.repeats + 1, static_cast<int64_t>(wanted)),
                              measurement_.most_repeats());
      if (next == record_.repeats) return true;
      record_.repeats = next;
    }
    return true;
  }

  bool warm_up() {
    constexpr double kAgreement = 0.02;
    constexpr size_t kWindows = 3;
    std::vector<double> recent;
    int64_t start_ns = RealClock::instance().now_ns();
    for (;;) {
      Batch batch;
      if (!try_batch(batch)) return false;
      recent.push_back(quantile_of_first(batch));
      if (recent.size() > kWindows) recent.erase(recent.begin());
      auto [least, most] = std::minmax_element(recent.begin(), recent.end());
      if (recent.size() == kWindows && *most - *least <= kAgreement * *most) return true;
      if (RealClock::instance().now_ns() - start_ns > options_.warm_up_limit_ns) {
        record_.add_flag(SampleFlag::kNotSettled);
        return true;
      }
    }
  }

  static double quantile_of_first(const Batch& batch) {
    return summarize(batch.samples.front()).median;
  }

  bool measure(bool verifies) {
    if (verifies && !take_over(measurement_.poison())) return false;
    Batch batch;
    if (!try_batch(batch)) return false;
    for (size_t quantity = 0; quantity < record_.samples.size(); ++quantity) {
      const std::vector<double>& more = batch.samples[quantity];
      record_.samples[quantity].insert(record_.samples[quantity].end(), more.begin(), more.end());
    }
    for (SampleFlag flag : batch.flags) record_.add_flag(flag);
    ++repetitions_;
    measured_ns_ += batch.duration_ns;
    record_.status = MeasurementStatus::kOk;
    return !verifies || verify();
  }

  bool verify() {
    Result<DataCheck> check = measurement_.check(deadline_ns());
    if (!take_over(check.status())) return false;
    record_.check.add(*check);
    if (check->wrong_bytes == 0) return true;
    record_.status = MeasurementStatus::kMismatch;
    record_.reason =
        fmt::format("{} of {} bytes arrived wrong, the first at offset {}, bits {:#04x} flipped",
                    check->wrong_bytes, check->bytes, check->first_wrong, check->flipped_bits);
    return false;
  }

  bool is_complete() const {
    return repetitions_ >= options_.repetitions * (1 + reruns_) &&
           measured_ns_ >= options_.min_time_ns;
  }

  /// Whether a measurement that has its repetitions is noisy and may have some more.
  bool is_worth_more() {
    bool is_noisy = summarize(record_.samples.front()).cv > options_.cv_limit;
    if (!is_noisy || reruns_ >= options_.most_reruns) return false;
    ++reruns_;
    return true;
  }

  Measurement& measurement_;
  const RepetitionOptions& options_;
  MeasurementRecord record_;
  bool is_running_ = false;
  int repetitions_ = 0, reruns_ = 0;
  int64_t used_ns_ = 0, measured_ns_ = 0, last_batch_ns_ = 1;
};

/// The measurements that go on, in the order of the next round.
std::vector<SampledMeasurement*> next_round(std::vector<SampledMeasurement>& all, bool shuffles,
                                            std::mt19937_64& generator) {
  std::vector<SampledMeasurement*> running;
  for (SampledMeasurement& one : all) {
    bool is_next = shuffles || running.empty();
    if (is_next && one.is_running()) running.push_back(&one);
  }
  if (shuffles) std::shuffle(running.begin(), running.end(), generator);
  return running;
}

}  // namespace

std::vector<MeasurementRecord> run_group(const MeasurementGroup& group,
                                         const RepetitionOptions& options) {
  std::vector<SampledMeasurement> all;
  for (const std::unique_ptr<Measurement>& measurement : group) {
    all.emplace_back(*measurement, options);
  }
  for (SampledMeasurement& one : all) one.begin();
  std::mt19937_64 generator(options.seed);
  for (;;) {
    std::vector<SampledMeasurement*> round = next_round(all, options.interleaves, generator);
    if (round.empty()) break;
    for (SampledMeasurement* one : round) one->repeat();
  }
  std::vector<MeasurementRecord> records;
  for (SampledMeasurement& one : all) {
    one.finish();
    records.push_back(one.take());
  }
  return records;
}

}  // namespace stagecoach
