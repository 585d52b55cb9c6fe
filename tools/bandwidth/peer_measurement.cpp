#include "tools/bandwidth/peer_measurement.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/clock.h"
#include "tools/bandwidth/units.h"

namespace stagecoach {

namespace {

constexpr double kLeastWindow = 0.8;
constexpr int64_t kMostLatencyCopies = 500;
constexpr double kNsPerMs = 1e6;

MeasurementInfo complete_peer_info(MeasurementInfo info, const PeerFlows& flows,
                                   PeerFigures figures) {
  for (const std::unique_ptr<PeerFlow>& flow : flows) info.payload_bytes += flow->chunk_bytes();
  if (flows.size() == 1) {
    info.quantities = {{"rate", "GB/s"}};
  } else if (figures == PeerFigures::kFirst) {
    info.payload_bytes = flows.front()->chunk_bytes();
    info.quantities = {{"rate", "GB/s"}, {"load", "GB/s"}};
  } else {
    info.quantities = {{"total", "GB/s"}};
    for (const std::unique_ptr<PeerFlow>& flow : flows) {
      info.quantities.push_back({flow->name(), "GB/s"});
    }
  }
  return info;
}

MeasurementInfo with_quantity(MeasurementInfo info, Quantity quantity) {
  info.quantities = {std::move(quantity)};
  return info;
}

}  // namespace

PeerMeasurement::PeerMeasurement(MeasurementInfo info, PeerFlows flows, PeerFigures figures)
    : Measurement(complete_peer_info(std::move(info), flows, figures)),
      flows_(std::move(flows)),
      figures_(figures),
      weights_(flows_.size(), 1.0) {}

Status PeerMeasurement::prepare() {
  for (const std::unique_ptr<PeerFlow>& flow : flows_) {
    STAGECOACH_RETURN_IF_ERROR(flow->prepare());
  }
  return Status::ok();
}

/// In turns, by what each has to do.
Status PeerMeasurement::issue_all(int64_t deadline_ns) {
  auto share = [](const PeerFlow& flow) {
    return static_cast<double>(flow.issued()) / static_cast<double>(flow.chunks());
  };
  for (;;) {
    const auto& next = *std::min_element(
        flows_.begin(), flows_.end(),
        [&](const auto& one, const auto& other) { return share(*one) < share(*other); });
    if (next->issued() == next->chunks()) break;
    STAGECOACH_RETURN_IF_ERROR(next->issue());
  }
  for (const std::unique_ptr<PeerFlow>& flow : flows_) {
    STAGECOACH_RETURN_IF_ERROR(flow->await(deadline_ns));
  }
  return Status::ok();
}

void PeerMeasurement::share_chunks(const std::vector<double>& rates) {
  std::vector<double> chunks_per_s;
  for (size_t i = 0; i < rates.size(); ++i) {
    chunks_per_s.push_back(rates[i] / static_cast<double>(flows_[i]->chunk_bytes()));
  }
  double sum = std::accumulate(chunks_per_s.begin(), chunks_per_s.end(), 0.0);
  // Without a window nothing is known.
  if (*std::min_element(chunks_per_s.begin(), chunks_per_s.end()) <= 0) return;
  for (size_t i = 0; i < rates.size(); ++i) {
    weights_[i] = chunks_per_s[i] / sum * static_cast<double>(rates.size());
  }
}

Result<Batch> PeerMeasurement::run(int64_t repeats, int64_t deadline_ns) {
  constexpr double kLeastChunks = 2, kLeastTogether = 4;
  double least = flows_.size() > 1 ? kLeastTogether : kLeastChunks;
  for (size_t i = 0; i < flows_.size(); ++i) {
    double wanted = std::round(static_cast<double>(repeats) * weights_[i]);
    STAGECOACH_RETURN_IF_ERROR(flows_[i]->begin(static_cast<int64_t>(std::max(least, wanted))));
  }
  Status status = issue_all(deadline_ns);
  if (!status.is_ok()) {
    for (const std::unique_ptr<PeerFlow>& flow : flows_) flow->abandon(status);
    return status;
  }
  std::vector<FlowMarks> marks;
  Batch batch;
  for (const std::unique_ptr<PeerFlow>& flow : flows_) {
    STAGECOACH_ASSIGN_OR_RETURN(FlowMarks of_flow, flow->marks());
    int64_t marked_ns = of_flow.back().time_ns - of_flow.front().time_ns;
    batch.duration_ns =
        std::max(batch.duration_ns, marked_ns * flow->chunks() / (flow->chunks() - 1));
    marks.push_back(std::move(of_flow));
  }
  WindowRates window = window_or_whole_time(marks);
  double total = window.total_bytes_per_s / kBytesPerGb;
  if (flows_.size() == 1) {
    batch.samples = {{total}};
    return batch;
  }
  if (window.coverage < kLeastWindow) batch.flags.push_back(SampleFlag::kShortWindow);
  if (figures_ == PeerFigures::kFirst) {
    double first = window.bytes_per_s.front() / kBytesPerGb;
    batch.samples = {{first}, {total - first}};
  } else {
    batch.samples.push_back({total});
    for (double rate : window.bytes_per_s) batch.samples.push_back({rate / kBytesPerGb});
  }
  share_chunks(window.bytes_per_s);
  return batch;
}

Status PeerMeasurement::poison() {
  for (const std::unique_ptr<PeerFlow>& flow : flows_) STAGECOACH_RETURN_IF_ERROR(flow->poison());
  return Status::ok();
}

Result<DataCheck> PeerMeasurement::check(int64_t deadline_ns) {
  DataCheck check;
  for (const std::unique_ptr<PeerFlow>& flow : flows_) {
    STAGECOACH_ASSIGN_OR_RETURN(DataCheck of_flow, flow->check(deadline_ns));
    check.add(of_flow);
  }
  return check;
}

PeerProofMeasurement::PeerProofMeasurement(MeasurementInfo info, std::shared_ptr<PeerProof> proof)
    : Measurement(with_quantity(std::move(info), {"copies", "1"})), proof_(std::move(proof)) {}

Result<Batch> PeerProofMeasurement::run(int64_t /*repeats*/, int64_t /*deadline_ns*/) {
  Batch batch;
  batch.duration_ns = proof_->duration_ns();
  batch.samples = {{static_cast<double>(proof_->copies())}};
  return batch;
}

Result<DataCheck> PeerProofMeasurement::check(int64_t /*deadline_ns*/) {
  return proof_->check();
}

PeerLatency::PeerLatency(MeasurementInfo info, std::unique_ptr<PeerFlow> flow)
    : Measurement(with_quantity(std::move(info), {"latency", "ms"})), flow_(std::move(flow)) {}

int64_t PeerLatency::most_repeats() const {
  return kMostLatencyCopies;
}

Result<Batch> PeerLatency::run(int64_t repeats, int64_t deadline_ns) {
  Batch batch;
  batch.samples.resize(1);
  for (int64_t copy = 0; copy < repeats; ++copy) {
    STAGECOACH_RETURN_IF_ERROR(flow_->begin(1));
    int64_t start_ns = RealClock::instance().now_ns();
    Status status = flow_->issue();
    if (status.is_ok()) status = flow_->await(deadline_ns);
    if (!status.is_ok()) {
      flow_->abandon(status);
      return status;
    }
    int64_t time_ns = RealClock::instance().now_ns() - start_ns;
    batch.duration_ns += time_ns;
    batch.samples.front().push_back(static_cast<double>(time_ns) / kNsPerMs);
  }
  return batch;
}

}  // namespace stagecoach
