#pragma once

#include <memory>
#include <vector>

#include "tools/bandwidth/measurement.h"
#include "tools/bandwidth/peer_flow.h"

namespace stagecoach {

// Drivers have hung in copies between devices: measure in a process of its own. None is for
// simulated devices.

using PeerFlows = std::vector<std::unique_ptr<PeerFlow>>;

/// What a measurement of several streams of copies says.
enum class PeerFigures : uint8_t {
  kTotal,  ///< "total", then each stream's
  kFirst   ///< "rate" of the first stream, then "load", what the others carry meanwhile
};

/// Copies between devices of one backend, one or several streams at once: "rate" in GB/s, or what
/// `figures` says, in the time in which all are active.
class PeerMeasurement final : public Measurement {
 public:
  /// `info` needs id, group and params; `flows` are one at least.
  PeerMeasurement(MeasurementInfo info, PeerFlows flows, PeerFigures figures);

  /// Unavailable where the driver does not let the devices reach each other; data loss where direct
  /// copies have not passed their proof.
  Status prepare() override;
  Result<Batch> run(int64_t repeats, int64_t deadline_ns) override;
  Status poison() override;
  Result<DataCheck> check(int64_t deadline_ns) override;

 private:
  Status issue_all(int64_t deadline_ns);
  void share_chunks(const std::vector<double>& rates);

  const PeerFlows flows_;
  const PeerFigures figures_;
  std::vector<double> weights_;  ///< chunks of a repeat, so that all end at the same time
};

/// The proof of direct copies itself: "copies" that were compared. It is as good as its count.
class PeerProofMeasurement final : public Measurement {
 public:
  PeerProofMeasurement(MeasurementInfo info, std::shared_ptr<PeerProof> proof);

  Status prepare() override { return proof_->run(); }
  Result<Batch> run(int64_t repeats, int64_t deadline_ns) override;
  Result<DataCheck> check(int64_t deadline_ns) override;
  int64_t most_repeats() const override { return 1; }

 private:
  const std::shared_ptr<PeerProof> proof_;
};

/// How long a copy of a few bytes takes from the call until the host knows that it is there:
/// "latency" in ms, a sample each copy.
class PeerLatency final : public Measurement {
 public:
  PeerLatency(MeasurementInfo info, std::unique_ptr<PeerFlow> flow);

  Status prepare() override { return flow_->prepare(); }
  Result<Batch> run(int64_t repeats, int64_t deadline_ns) override;
  Status poison() override { return flow_->poison(); }
  Result<DataCheck> check(int64_t deadline_ns) override { return flow_->check(deadline_ns); }
  int64_t most_repeats() const override;

 private:
  const std::unique_ptr<PeerFlow> flow_;
};

}  // namespace stagecoach
