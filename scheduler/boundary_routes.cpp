#include "scheduler/boundary_routes.h"

#include <fmt/format.h>

namespace stagecoach {

namespace {

/// A line that names pairs until it would become too long.
class PairLine {
 public:
  explicit PairLine(const char* start) : start_(start) {}

  void add(const std::string& pair) {
    if (++count_ > kMostNamed) return;
    text_ += (text_.empty() ? "" : ", ") + pair;
  }

  std::string text() const {
    if (count_ == 0) return "";
    std::string rest = count_ > kMostNamed ? fmt::format(" and {} more", count_ - kMostNamed) : "";
    return fmt::format("{}: {}{}", start_, text_, rest);
  }

 private:
  static constexpr int kMostNamed = 4;

  const char* start_;
  std::string text_;
  int count_ = 0;
};

/// "12 GB/s", or what there is instead.
std::string rate_text(double bytes_per_s, const char* otherwise) {
  return bytes_per_s > 0 ? fmt::format("{:.3g} GB/s", bytes_per_s / 1e9) : otherwise;
}

}  // namespace

BoundaryRoutes boundary_routes(const MachineProfile& profile,
                               const std::vector<std::string>& devices) {
  PairLine measured("activations travel through the host, as measured");
  PairLine slower(
      "activations travel through the host, not from card to card, which was measured faster");
  PairLine unknown("activations travel through the host; copies between cards were not measured");
  for (const std::string& from : devices) {
    for (const std::string& to : devices) {
      if (from == to) continue;
      const MachinePeer* peer = profile.peer_of(from, to);
      std::string pair = fmt::format("{} to {}", from, to);
      if (peer == nullptr) {
        unknown.add(pair);
        continue;
      }
      std::string staged = rate_text(peer->through_host_bytes_per_s, "an unknown rate");
      std::string direct =
          rate_text(peer->direct_bytes_per_s, peer->reason.empty() ? "none" : peer->reason.c_str());
      (peer->is_faster_direct() ? slower : measured)
          .add(fmt::format("{} {}, directly {}", pair, staged, direct));
    }
  }
  return {measured.text(), slower.text(), unknown.text()};
}

}  // namespace stagecoach
