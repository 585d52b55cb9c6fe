#include "tools/bandwidth/peer_groups.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "tools/bandwidth/peer_measurement.h"

namespace stagecoach {

namespace {

constexpr PeerRoute kRoutes[] = {PeerRoute::kDirect, PeerRoute::kStaged};
constexpr ByteCount kLatencyBytes = 4;
constexpr ByteCount kBuffersOfFlow = 3;  ///< on the host, of four chunks each, at most

/// Builds the groups; proofs are shared by all that need them.
class PeerGroups {
 public:
  explicit PeerGroups(GroupBuilder& builder) : builder_(builder) {}

  void run() {
    for (const MeasuredDevice& from : builder_.devices()) {
      for (const MeasuredDevice& to : builder_.devices()) {
        if (are_peers(*from.device, *to.device)) add_way(*from.device, *to.device);
      }
    }
    for (size_t one = 0; one < builder_.devices().size(); ++one) {
      for (size_t other = one + 1; other < builder_.devices().size(); ++other) {
        Device& first = *builder_.devices()[one].device;
        Device& second = *builder_.devices()[other].device;
        if (are_peers(first, second)) add_both(first, second);
      }
    }
    for (const MeasuredDevice& one : builder_.devices()) add_fans(*one.device);
    if (is_empty_) builder_.note("copies between devices need two devices of one backend");
  }

 private:
  static bool are_peers(const Device& one, const Device& other) {
    return &one != &other && one.info().backend == other.info().backend;
  }

  /// A group of its own, so that its memory is given back before the next takes some.
  BandwidthGroup start() const {
    BandwidthGroup group = builder_.start("p2p");
    // Silent corruption is what is looked for.
    if (group.sampling.verify == VerifyMode::kEnd) group.sampling.verify = VerifyMode::kEach;
    return group;
  }

  void push(BandwidthGroup group) {
    is_empty_ = false;
    builder_.push(std::move(group));
  }

  ByteCount chunk_of(const Device& one, const Device& other) const {
    if (!builder_.options().sizes.empty()) return builder_.options().sizes.back() / 4 * 4;
    return std::min(builder_.ring_bytes(one), builder_.ring_bytes(other)) / 16;
  }

  std::shared_ptr<PeerProof> proof(Device& source, Device& target) {
    std::shared_ptr<PeerProof>& known = proofs_[{&source, &target}];
    if (known != nullptr) return known;
    const RepetitionOptions& sampling = builder_.options().sampling;
    bool is_card = source.info().is_real_hardware;
    PeerTrial trial;
    trial.most_bytes = std::min(builder_.ring_bytes(source), builder_.ring_bytes(target)) / 4;
    // A mock's pace would make it long.
    constexpr ByteCount kOfCards = kGiB, kOfMocks = 4 * kMiB;
    trial.budget_bytes = is_card ? kOfCards : std::min(kOfMocks, trial.most_bytes * 4);
    trial.timeout_ns = sampling.timeout_ns;
    trial.seed = sampling.seed;
    trial.is_cancelled = sampling.is_cancelled;
    known = std::make_shared<PeerProof>(source, target, std::move(trial), builder_.pool());
    return known;
  }

  std::unique_ptr<PeerFlow> flow(Device* source, Device* target, PeerRoute route, ByteCount chunk) {
    PeerEnds ends{source, target, route, nullptr};
    if (route == PeerRoute::kDirect) ends.proof = proof(*source, *target);
    return std::make_unique<PeerFlow>(
        std::move(ends), chunk, builder_.options().sampling.seed + next_seed_++, builder_.pool());
  }

  void add(BandwidthGroup& group, MeasurementInfo info, PeerFlows flows, PeerFigures figures) {
    ByteCount pinned = 0;
    for (const auto& one : flows) pinned += kBuffersOfFlow * 4 * one->chunk_bytes();
    group.pinned_bytes += pinned;
    group.measurements.push_back(
        std::make_unique<PeerMeasurement>(std::move(info), std::move(flows), figures));
  }

  static MeasurementInfo info_of(const std::string& source, const std::string& target,
                                 const char* pattern, PeerRoute route, ByteCount size) {
    MeasurementInfo info;
    info.group = "p2p";
    info.params["source"] = source;
    info.params["target"] = target;
    info.params["pattern"] = pattern;
    info.params["path"] = peer_route_name(route);
    info.params["size"] = size;
    return info;
  }

  /// One direction of a pair.
  void add_way(Device& source, Device& target) {
    ByteCount chunk = chunk_of(source, target);
    BandwidthGroup rates = start();
    MeasurementInfo proof_info =
        info_of(source.id(), target.id(), "check", PeerRoute::kDirect, kLatencyBytes);
    proof_info.params["size"] = Json();
    proof_info.id = fmt::format("p2p/{}/{}/check", source.id(), target.id());
    rates.measurements.push_back(
        std::make_unique<PeerProofMeasurement>(std::move(proof_info), proof(source, target)));
    BandwidthGroup latencies = start();
    for (PeerRoute route : kRoutes) {
      const char* name = peer_route_name(route);
      MeasurementInfo info;
      info.id = fmt::format("p2p/{}/{}/{}/{}", source.id(), target.id(), name, short_size(chunk));
      info.group = "p2p";
      info.params["device"] = source.id();
      info.params["peer"] = target.id();
      info.params["route"] = name;
      info.params["engine"] = "copy";
      info.params["size"] = chunk;
      add(rates, std::move(info), one_flow(flow(&source, &target, route, chunk)),
          PeerFigures::kTotal);
      MeasurementInfo latency = info_of(source.id(), target.id(), "latency", route, kLatencyBytes);
      latency.id = fmt::format("p2p/{}/{}/latency/{}", source.id(), target.id(), name);
      latencies.measurements.push_back(std::make_unique<PeerLatency>(
          std::move(latency), flow(&source, &target, route, kLatencyBytes)));
    }
    push(std::move(rates));
    push(std::move(latencies));
    add_load(source, target, chunk);
  }

  /// Direct copies while all four host links of the pair are in use.
  void add_load(Device& source, Device& target, ByteCount chunk) {
    constexpr ByteCount kLess = 4;  ///< of the copies beside them: five rings are held at a time
    ByteCount beside = std::max<ByteCount>(4, chunk / kLess / 4 * 4);
    PeerFlows flows = one_flow(flow(&source, &target, PeerRoute::kDirect, chunk));
    for (Device* device : {&source, &target}) {
      flows.push_back(flow(nullptr, device, PeerRoute::kUp, beside));
      flows.push_back(flow(device, nullptr, PeerRoute::kDown, beside));
    }
    MeasurementInfo info = info_of(source.id(), target.id(), "load", PeerRoute::kDirect, chunk);
    info.id = fmt::format("p2p/{}/{}/load/{}", source.id(), target.id(), short_size(chunk));
    BandwidthGroup group = start();
    add(group, std::move(info), std::move(flows), PeerFigures::kFirst);
    push(std::move(group));
  }

  /// Both directions of a pair at once.
  void add_both(Device& one, Device& other) {
    ByteCount chunk = chunk_of(one, other);
    BandwidthGroup group = start();
    for (PeerRoute route : kRoutes) {
      PeerFlows flows = one_flow(flow(&one, &other, route, chunk));
      flows.push_back(flow(&other, &one, route, chunk));
      MeasurementInfo info = info_of(one.id(), other.id(), "both", route, chunk);
      info.id = fmt::format("p2p/{}/{}/both/{}/{}", one.id(), other.id(), peer_route_name(route),
                            short_size(chunk));
      info.directions = 2;
      add(group, std::move(info), std::move(flows), PeerFigures::kTotal);
    }
    push(std::move(group));
  }

  /// From one to all others, and back. Two devices have that already.
  void add_fans(Device& centre) {
    std::vector<Device*> others;
    ByteCount chunk = builder_.ring_bytes(centre) / 16;
    for (const MeasuredDevice& one : builder_.devices()) {
      if (!are_peers(centre, *one.device)) continue;
      others.push_back(one.device);
      chunk = std::min(chunk, chunk_of(centre, *one.device));
    }
    if (others.size() < 2) return;
    BandwidthGroup group = start();
    PeerFlows out, in;
    for (Device* other : others) {
      out.push_back(flow(&centre, other, PeerRoute::kDirect, chunk));
      in.push_back(flow(other, &centre, PeerRoute::kDirect, chunk));
    }
    MeasurementInfo to = info_of(centre.id(), "all", "one_to_all", PeerRoute::kDirect, chunk);
    to.id = fmt::format("p2p/{}/all/direct/{}", centre.id(), short_size(chunk));
    add(group, std::move(to), std::move(out), PeerFigures::kTotal);
    MeasurementInfo from = info_of("all", centre.id(), "all_to_one", PeerRoute::kDirect, chunk);
    from.id = fmt::format("p2p/all/{}/direct/{}", centre.id(), short_size(chunk));
    add(group, std::move(from), std::move(in), PeerFigures::kTotal);
    push(std::move(group));
  }

  static PeerFlows one_flow(std::unique_ptr<PeerFlow> flow) {
    PeerFlows flows;
    flows.push_back(std::move(flow));
    return flows;
  }

  GroupBuilder& builder_;
  std::map<std::pair<Device*, Device*>, std::shared_ptr<PeerProof>> proofs_;
  uint64_t next_seed_ = 0;
  bool is_empty_ = true;
};

}  // namespace

void add_peers(GroupBuilder& builder) {
  PeerGroups(builder).run();
}

}  // namespace stagecoach
