#include "testing/fault_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <optional>

#include "core/bytes.h"
#include "core/random.h"
#include "core/suggest.h"
#include "hal/op_call.h"
#include "testing/interceptor.h"

namespace stagecoach {

namespace {

constexpr FaultKind kKinds[] = {
    FaultKind::kFail,    FaultKind::kFailLater,  FaultKind::kDelay,         FaultKind::kCorrupt,
    FaultKind::kExhaust, FaultKind::kDeviceLost, FaultKind::kNeverCompletes};

constexpr std::string_view kWritingVerbs[] = {verbs::kCopy, verbs::kFill, verbs::kLaunch};
constexpr std::string_view kOrderingVerbs[] = {verbs::kRecord, verbs::kWait};
constexpr std::string_view kAllocatingVerbs[] = {verbs::kAllocate, verbs::kAllocatePinned};
constexpr std::string_view kOtherVerbs[] = {
    verbs::kSynchronize,    verbs::kQueryEvent,  verbs::kTimestampEvent,
    verbs::kCreateStream,   verbs::kCreateEvent, verbs::kRegisterHost,
    verbs::kLoadExecutable, verbs::kEnablePeer,  verbs::kMemoryUsage};

std::vector<std::string_view> make_verbs() {
  std::vector<std::string_view> all;
  auto append = [&all](const auto& names) {
    all.insert(all.end(), std::begin(names), std::end(names));
  };
  append(kWritingVerbs);
  append(kOrderingVerbs);
  append(kAllocatingVerbs);
  append(kOtherVerbs);
  for (int i = 0; i < kOpKindCount; ++i) all.push_back(op_kind_name(static_cast<OpKind>(i)));
  return all;
}

template <typename Names>
bool contains(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool is_op(std::string_view verb) {
  for (int i = 0; i < kOpKindCount; ++i) {
    if (op_kind_name(static_cast<OpKind>(i)) == verb) return true;
  }
  return false;
}

Status bad_fault(std::string_view text, const std::string& what) {
  return invalid_argument("fault '" + std::string(text) + "': " + what +
                          "; write DEVICE.VERB#NTH=KIND, such as '0.copy#3=fail'");
}

std::string unknown_name(const char* noun, std::string_view name,
                         std::span<const std::string> candidates) {
  std::string message = "unknown " + std::string(noun) + " '" + std::string(name) + "'";
  std::string nearest = nearest_name(name, candidates);
  if (!nearest.empty()) message += ", did you mean '" + nearest + "'?";
  return message;
}

std::optional<int64_t> parse_count(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  std::from_chars_result result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end || value < 0) return std::nullopt;
  return value;
}

Status parse_kind(std::string_view text, std::string_view whole, Fault& fault) {
  size_t colon = text.find(':');
  std::string_view name = text.substr(0, colon);
  std::vector<std::string> candidates;
  for (FaultKind kind : kKinds) candidates.emplace_back(fault_kind_name(kind));
  auto found = std::find(candidates.begin(), candidates.end(), name);
  if (found == candidates.end()) return bad_fault(whole, unknown_name("kind", name, candidates));
  fault.kind = kKinds[found - candidates.begin()];
  bool has_duration = colon != std::string_view::npos;
  if (has_duration != (fault.kind == FaultKind::kDelay)) {
    return bad_fault(whole, "'delay' takes a duration ('delay:2ms'), the other kinds none");
  }
  if (!has_duration) return Status::ok();
  Result<int64_t> duration = parse_duration_ns(text.substr(colon + 1));
  if (!duration.is_ok())
    return duration.status().with_context("fault '" + std::string(whole) + "'");
  if (*duration <= 0) return bad_fault(whole, "the delay must be above 0");
  fault.delay_ns = *duration;
  return Status::ok();
}

Result<Fault> parse_fault(std::string_view text) {
  size_t dot = text.find('.');
  size_t hash = text.find('#');
  size_t equals = text.find('=');
  if (dot == std::string_view::npos || hash == std::string_view::npos ||
      equals == std::string_view::npos || !(dot < hash && hash < equals)) {
    return bad_fault(text, "the form is wrong");
  }
  Fault fault;
  std::string_view device = text.substr(0, dot);
  if (device != "*") {
    std::optional<int64_t> index = parse_count(device);
    if (!index || *index > 1'000'000) {
      return bad_fault(text, "the device must be an index or '*'");
    }
    fault.device = static_cast<int>(*index);
  }
  fault.verb = std::string(text.substr(dot + 1, hash - dot - 1));
  if (!contains(all_fault_verbs(), fault.verb)) {
    std::vector<std::string> candidates(all_fault_verbs().begin(), all_fault_verbs().end());
    return bad_fault(text, unknown_name("verb", fault.verb, candidates));
  }
  std::optional<int64_t> nth = parse_count(text.substr(hash + 1, equals - hash - 1));
  if (!nth || *nth < 1) return bad_fault(text, "the call must be a number from 1");
  fault.nth = *nth;
  STAGECOACH_RETURN_IF_ERROR(parse_kind(text.substr(equals + 1), text, fault));
  if (!fault_applies(fault.kind, fault.verb)) {
    return bad_fault(text, "'" + std::string(fault_kind_name(fault.kind)) + "' cannot happen to '" +
                               fault.verb + "'");
  }
  return fault;
}

}  // namespace

std::span<const FaultKind> all_fault_kinds() {
  return kKinds;
}

std::string_view fault_kind_name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kFail:
      return "fail";
    case FaultKind::kFailLater:
      return "fail_later";
    case FaultKind::kDelay:
      return "delay";
    case FaultKind::kCorrupt:
      return "corrupt";
    case FaultKind::kExhaust:
      return "exhaust";
    case FaultKind::kDeviceLost:
      return "device_lost";
    case FaultKind::kNeverCompletes:
      return "never_completes";
  }
  return "unknown";
}

std::span<const std::string_view> all_fault_verbs() {
  static const std::vector<std::string_view> all = make_verbs();
  return all;
}

bool fault_applies(FaultKind kind, std::string_view verb) {
  bool writes = contains(kWritingVerbs, verb) || is_op(verb);
  switch (kind) {
    case FaultKind::kFailLater:
    case FaultKind::kNeverCompletes:
      return writes || contains(kOrderingVerbs, verb);
    case FaultKind::kCorrupt:
      return writes;
    case FaultKind::kExhaust:
      return contains(kAllocatingVerbs, verb);
    case FaultKind::kFail:
    case FaultKind::kDelay:
    case FaultKind::kDeviceLost:
      break;
  }
  return contains(all_fault_verbs(), verb);
}

std::string format_fault_plan(const FaultPlan& plan) {
  std::string text;
  for (const Fault& fault : plan.faults) {
    if (!text.empty()) text += ',';
    text += fault.device == Fault::kAnyDevice ? "*" : std::to_string(fault.device);
    text += "." + fault.verb + "#" + std::to_string(fault.nth) + "=";
    text += fault_kind_name(fault.kind);
    if (fault.kind == FaultKind::kDelay) text += ":" + std::to_string(fault.delay_ns) + "ns";
  }
  return text;
}

Result<FaultPlan> parse_fault_plan(std::string_view text) {
  FaultPlan plan;
  while (!text.empty()) {
    size_t comma = std::min(text.find(','), text.size());
    Fault fault;
    STAGECOACH_ASSIGN_OR_RETURN(fault, parse_fault(text.substr(0, comma)));
    plan.faults.push_back(std::move(fault));
    if (comma + 1 == text.size()) return invalid_argument("the fault plan ends in a comma");
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return plan;
}

CallCounts least_counts(std::span<const CallCounts> runs) {
  if (runs.empty()) return {};
  CallCounts least;
  for (const auto& [key, first] : runs.front()) {
    int64_t count = first;
    for (const CallCounts& run : runs.subspan(1)) {
      auto found = run.find(key);
      count = std::min(count, found == run.end() ? 0 : found->second);
    }
    if (count > 0) least[key] = count;
  }
  return least;
}

FaultPlan random_fault(uint64_t seed, const CallCounts& counts, std::span<const FaultKind> kinds) {
  STAGECOACH_CHECK(!counts.empty());
  RandomKey key;
  key.seed = seed;
  auto pair = std::next(counts.begin(), static_cast<std::ptrdiff_t>(seed % counts.size()));
  STAGECOACH_CHECK(pair->second > 0);

  Fault fault;
  fault.device = pair->first.first;
  fault.verb = pair->first.second;
  fault.nth = 1 + random_word(key, 0) % pair->second;
  std::vector<FaultKind> applicable;
  std::copy_if(kinds.begin(), kinds.end(), std::back_inserter(applicable),
               [&fault](FaultKind kind) { return fault_applies(kind, fault.verb); });
  if (!applicable.empty()) fault.kind = applicable[random_word(key, 1) % applicable.size()];
  if (fault.kind == FaultKind::kDelay) {
    fault.delay_ns = (1 + random_word(key, 2) % 20) * int64_t{1'000'000};
  }
  return FaultPlan{{fault}};
}

}  // namespace stagecoach
