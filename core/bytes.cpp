#include "core/bytes.h"

#include <charconv>
#include <cmath>
#include <fmt/format.h>

namespace stagecoach {

namespace {

struct NumberAndSuffix {
  double number;
  std::string_view suffix;
};

Result<NumberAndSuffix> split_number(std::string_view text, std::string_view what) {
  double number = 0;
  const char* end = text.data() + text.size();
  auto [next, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || next == text.data() || !std::isfinite(number) || number < 0) {
    return invalid_argument(fmt::format("'{}' is not a {}", text, what));
  }
  return NumberAndSuffix{number, std::string_view(next, static_cast<size_t>(end - next))};
}

int prefix_power(std::string_view suffix) {
  if (suffix.empty()) return 0;
  switch (suffix.front()) {
    case 'K':
    case 'k':
      return 1;
    case 'M':
      return 2;
    case 'G':
      return 3;
    case 'T':
      return 4;
    default:
      return -1;
  }
}

}  // namespace

Result<ByteCount> checked_multiply(int64_t left, int64_t right) {
  int64_t product = 0;
  if (left < 0 || right < 0 || __builtin_mul_overflow(left, right, &product)) {
    return invalid_argument(fmt::format("{} x {} is not a valid size", left, right));
  }
  return product;
}

Result<ByteCount> parse_bytes(std::string_view text) {
  STAGECOACH_ASSIGN_OR_RETURN(NumberAndSuffix parts,
                              split_number(text, "size (such as 64M or 1.5G)"));
  std::string_view suffix = parts.suffix;
  int power = prefix_power(suffix);
  if (power < 0) power = 0;
  if (power > 0) suffix.remove_prefix(1);
  if (!suffix.empty() && suffix != "B" && !(power > 0 && suffix == "iB")) {
    return invalid_argument(
        fmt::format("'{}' is not a size; use a number with K, M, G or T", text));
  }
  double size = parts.number * std::pow(1024.0, power);
  if (size > 9.0e18) return invalid_argument(fmt::format("'{}' is too large", text));
  return static_cast<ByteCount>(std::llround(size));
}

std::string format_bytes(ByteCount size) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(size);
  size_t unit = 0;
  while (std::abs(value) >= 1024.0 && unit + 1 < std::size(kUnits)) {
    value /= 1024.0;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", size);
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

Result<int64_t> parse_duration_ns(std::string_view text) {
  STAGECOACH_ASSIGN_OR_RETURN(NumberAndSuffix parts,
                              split_number(text, "time (such as 20us or 60s)"));
  double scale = 0;
  if (parts.suffix == "ns") scale = 1;
  if (parts.suffix == "us") scale = 1e3;
  if (parts.suffix == "ms") scale = 1e6;
  if (parts.suffix == "s" || parts.suffix.empty()) scale = 1e9;
  if (scale == 0) {
    return invalid_argument(fmt::format("'{}' is not a time; use ns, us, ms or s", text));
  }
  double value = parts.number * scale;
  if (value > 9.0e18) return invalid_argument(fmt::format("'{}' is too long", text));
  return static_cast<int64_t>(std::llround(value));
}

Result<double> parse_rate(std::string_view text) {
  STAGECOACH_ASSIGN_OR_RETURN(NumberAndSuffix parts, split_number(text, "rate (such as 20G)"));
  int power = prefix_power(parts.suffix);
  if (power < 0 || parts.suffix.size() > 1) {
    return invalid_argument(
        fmt::format("'{}' is not a rate; use a number with K, M, G or T", text));
  }
  return parts.number * std::pow(1000.0, power);
}

}  // namespace stagecoach
