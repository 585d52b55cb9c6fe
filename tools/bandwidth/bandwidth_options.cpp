#include "tools/bandwidth/bandwidth_options.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/suggest.h"

namespace stagecoach {

namespace {

constexpr ByteCount kLeastChunk = 8, kMostChunk = ByteCount{1} << 40;
constexpr int64_t kMostDepth = 1024;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (;;) {
    size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

/// What is named twice is measured once.
template <typename Value>
void add_once(Value value, std::vector<Value>& values) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

Result<ByteCount> parse_chunk_size(const std::string& text, const std::string& option) {
  Result<ByteCount> size = parse_bytes(text);
  if (size.is_ok() && *size >= kLeastChunk && *size <= kMostChunk && *size % kLeastChunk == 0) {
    return size;
  }
  return invalid_argument(fmt::format(
      "{} holds '{}'; each must be a size from 8 bytes to 1T, a multiple of 8, such as 64K", option,
      text));
}

Result<std::vector<ByteCount>> parse_size_range(const std::vector<std::string>& parts,
                                                const std::string& option) {
  STAGECOACH_ASSIGN_OR_RETURN(ByteCount first, parse_chunk_size(parts[0], option));
  STAGECOACH_ASSIGN_OR_RETURN(ByteCount last, parse_chunk_size(parts[1], option));
  int factor = 0;
  const std::string& text = parts[2];
  const char* end = text.data() + text.size();
  bool is_factor = text.size() > 1 && text[0] == 'x' &&
                   std::from_chars(text.data() + 1, end, factor).ptr == end && factor > 1;
  if (!is_factor || last < first) {
    return invalid_argument(
        fmt::format("{} is '{}'; a range is FIRST:LAST:xFACTOR with FIRST up to LAST and a factor "
                    "above 1, such as 4K:256M:x4",
                    option, fmt::join(parts, ":")));
  }
  std::vector<ByteCount> sizes;
  for (ByteCount size = first; size <= last; size *= factor) sizes.push_back(size);
  return sizes;
}

}  // namespace

const std::vector<BandwidthSuite>& bandwidth_suites() {
  static const std::vector<BandwidthSuite> suites = {
      {"quick",
       "copies, duplex, all devices at once, products, updates, host memory: less than 40 s",
       {"copy", "duplex", "together", "compute", "layers", "optim", "host", "overlap"},
       false},
      {"full",
       "everything that this version measures",
       {"copy", "duplex", "together", "contention", "urgent", "pin", "local", "compute", "layers",
        "optim", "host", "overlap"},
       false},
      {"copy", "host to device and back, by size, depth and kind of memory", {"copy"}, true},
      {"duplex", "both directions of a device at once", {"duplex"}, true},
      {"contention",
       "what devices share on their way to the host",
       {"contention", "together"},
       true},
      {"urgent", "how long urgent copies wait behind bulk", {"urgent"}, true},
      {"host", "threads that read, write and copy host memory", {"host"}, false},
      {"pin", "what page-locked memory costs to get and to free", {"pin"}, true},
      {"compute", "products of matrices on each device", {"compute"}, true},
      {"layers",
       "layers of common models on each device, operation by operation",
       {"layers"},
       true},
      {"optim", "updates of parameters by host threads", {"optim"}, false},
      {"p2p",
       "copies between devices, directly and through the host; always isolated",
       {"p2p"},
       true},
      {"pin_steps",
       "pins memory step by step until it is refused; `pin` runs it in a process of its own",
       {},
       true},
      {"memory_steps",
       "touches memory step by step; large measurements run it in a process of their own",
       {},
       false},
      {"compare", "two files that --out wrote: compare BEFORE AFTER", {}, false},
      {"plot", "draw a file that --out wrote: plot FILE [--plot FILE.svg]", {}, false},
      {"profile",
       "a machine profile: show FILE, check FILE, export FILE --csv OUT; import "
       "NVBANDWIDTH.json [RESULTS.json]",
       {},
       false},
      {"overlap",
       "host threads, copies and products at once, and what each loses",
       {"overlap"},
       true},
      {"local", "copies inside the memory of each device", {"local"}, true}};
  return suites;
}

Result<const BandwidthSuite*> find_bandwidth_suite(const std::string& name) {
  std::vector<std::string> known;
  for (const BandwidthSuite& suite : bandwidth_suites()) {
    if (suite.name == name) return &suite;
    known.push_back(suite.name);
  }
  std::string nearest = nearest_name(name, known);
  return invalid_argument(fmt::format("'bench bandwidth' does not measure '{}'{}", name,
                                      nearest.empty()
                                          ? fmt::format("; it has {}", fmt::join(known, ", "))
                                          : fmt::format("; did you mean '{}'?", nearest)));
}

Result<std::vector<ByteCount>> parse_size_list(const std::string& text, const std::string& option) {
  std::vector<std::string> range = split(text, ':');
  if (range.size() == 3) return parse_size_range(range, option);
  std::vector<ByteCount> sizes;
  for (const std::string& part : split(text, ',')) {
    STAGECOACH_ASSIGN_OR_RETURN(ByteCount size, parse_chunk_size(part, option));
    add_once(size, sizes);
  }
  return sizes;
}

Result<std::vector<int64_t>> parse_depth_list(const std::string& text, const std::string& option) {
  std::vector<int64_t> depths;
  for (const std::string& part : split(text, ',')) {
    int64_t depth = 0;
    const char* end = part.data() + part.size();
    bool is_whole = !part.empty() && std::from_chars(part.data(), end, depth).ptr == end;
    if (!is_whole || depth < 1 || depth > kMostDepth) {
      return invalid_argument(
          fmt::format("{} holds '{}'; each must be a whole number from 1 to {}, such as 1,2,8",
                      option, part, kMostDepth));
    }
    add_once(depth, depths);
  }
  return depths;
}

Result<std::vector<MemoryKind>> parse_memory_kinds(const std::string& text,
                                                   const std::string& option) {
  constexpr MemoryKind kKinds[] = {MemoryKind::kHostPinned, MemoryKind::kHostRegistered,
                                   MemoryKind::kHostPageable};
  std::vector<MemoryKind> kinds;
  for (const std::string& part : split(text, ',')) {
    const MemoryKind* found = nullptr;
    for (const MemoryKind& kind : kKinds) {
      if (part == memory_kind_name(kind)) found = &kind;
    }
    if (found == nullptr) {
      return invalid_argument(
          fmt::format("{} holds '{}'; each must be pinned, registered or pageable", option, part));
    }
    add_once(*found, kinds);
  }
  return kinds;
}

}  // namespace stagecoach
