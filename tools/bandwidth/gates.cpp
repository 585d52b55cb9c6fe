#include "tools/bandwidth/gates.h"

#include <charconv>
#include <cmath>
#include <fmt/format.h>

#include "core/suggest.h"
#include "tools/bandwidth/units.h"

namespace stagecoach {

Result<std::vector<Gate>> parse_gates(const std::vector<std::string>& texts) {
  std::vector<Gate> gates;
  for (const std::string& text : texts) {
    size_t equals = text.rfind('=');
    Gate gate;
    const char* end = text.data() + text.size();
    bool is_gate = equals != std::string::npos && equals > 0 && equals + 1 < text.size();
    if (is_gate) {
      gate.id = text.substr(0, equals);
      auto [next, error] = std::from_chars(text.data() + equals + 1, end, gate.least);
      is_gate = error == std::errc() && next == end && gate.least > 0 && std::isfinite(gate.least);
    }
    if (!is_gate) {
      return invalid_argument(
          fmt::format("--fail-below is '{}'; it must be ID=VALUE with a number above 0, such as "
                      "copy/cuda:0/up/pinned/256M=50; --list prints ids",
                      text));
    }
    gates.push_back(std::move(gate));
  }
  return gates;
}

Result<bool> check_gates(const std::vector<Gate>& gates, BandwidthReport& report) {
  bool has_passed = true;
  for (const Gate& gate : gates) {
    const MeasurementRecord* record = report.find(gate.id);
    if (record == nullptr && report.is_interrupted) continue;
    if (record == nullptr) {
      std::vector<std::string> known;
      for (const MeasurementRecord& one : report.records) known.push_back(one.info.id);
      std::string nearest = nearest_name(gate.id, known);
      return invalid_argument(fmt::format(
          "--fail-below names '{}', which was not measured{}", gate.id,
          nearest.empty() ? "; --list prints ids" : fmt::format("; did you mean '{}'?", nearest)));
    }
    const std::string& unit = record->info.quantities.front().unit;
    if (is_better_low(unit)) {
      return invalid_argument(fmt::format(
          "--fail-below names '{}', which is in {}, where less is better; use --baseline "
          "with a file of an earlier run",
          gate.id, unit));
    }
    if (record->is_ok() && record->median() >= gate.least) continue;
    has_passed = false;
    report.findings.insert(report.findings.begin(),
                           {Severity::kError,
                            fmt::format("{} is {:.4g} {}, below the gate of {:.4g}", gate.id,
                                        record->median(), unit, gate.least),
                            "compare with an earlier result, or lower the gate",
                            {gate.id}});
  }
  return has_passed;
}

}  // namespace stagecoach
