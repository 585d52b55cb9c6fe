#include "tools/bandwidth/id_filter.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <fmt/format.h>
#include <regex.h>
#include <string_view>
#include <vector>

namespace stagecoach {

namespace {

constexpr size_t kMostCharacters = 1000;
/// Of the tree that regcomp builds, in which `+` and `{}` repeat what they stand behind.
constexpr int64_t kMostNodes = 2000;

/// Walks over an expression before it is compiled: how much it will take, and what POSIX does not
/// define and the library would take for something else.
class ExpressionWalk {
 public:
  explicit ExpressionWalk(std::string_view text) : text_(text) {}

  /// What is wrong; empty where nothing is.
  std::string problem() {
    while (problem_.empty() && at_ < text_.size()) step();
    if (problem_.empty() && largest_ > kMostNodes) {
      problem_ = "its repetitions within repetitions are too many; write it without";
    }
    return problem_;
  }

 private:
  void step() {
    char c = text_[at_++];
    switch (c) {
      case '\\':
        return escape();
      case '[':
        return bracket();
      case '(':
        if (at_ < text_.size() && text_[at_] == '?') problem_ = "POSIX has no groups with '(?'";
        groups_.push_back(total_);
        total_ = atom_ = 0;
        return;
      case ')':
        return close();
      case '*':
      case '?':
        return repeat(1);
      case '+':
        return repeat(2);
      case '{':
        return interval();
      default:
        return add(1);
    }
  }

  void escape() {
    constexpr std::string_view kKnown = "wWsSbB";
    if (at_ < text_.size()) {
      char c = text_[at_++];
      if (c >= '1' && c <= '9') {
        problem_ = "it must not refer back to a group";
      } else if (std::isalnum(static_cast<unsigned char>(c)) != 0 &&
                 kKnown.find(c) == std::string_view::npos) {
        problem_ = fmt::format("POSIX has no '\\{}'; write classes such as [0-9]", c);
      }
    }
    add(1);
  }

  /// To the bracket that ends it; one that is first is an ordinary character, as are those of
  /// classes like [:digit:].
  void bracket() {
    if (at_ < text_.size() && text_[at_] == '^') ++at_;
    if (at_ < text_.size() && text_[at_] == ']') ++at_;
    while (at_ < text_.size() && text_[at_] != ']') {
      std::string_view rest = text_.substr(at_);
      bool is_class =
          rest.size() > 1 && rest[0] == '[' && (rest[1] == ':' || rest[1] == '.' || rest[1] == '=');
      size_t end = is_class ? rest.find(std::string{rest[1], ']'}, 2) : std::string_view::npos;
      at_ += end == std::string_view::npos ? 1 : end + 2;
    }
    if (at_ == text_.size()) problem_ = "a bracket is not closed";
    ++at_;
    add(1);
  }

  void close() {
    int64_t inner = total_ + 1;
    total_ = groups_.empty() ? 0 : groups_.back();
    if (!groups_.empty()) groups_.pop_back();
    add(inner);
  }

  void interval() {
    size_t end = text_.find('}', at_);
    int64_t most = 1;
    const char* next = text_.data() + at_;
    const char* last = text_.data() + std::min(end, text_.size());
    while (next < last) {
      int64_t number = 0;
      auto [behind, error] = std::from_chars(next, last, number);
      if (error == std::errc::result_out_of_range) number = kMostNodes + 1;
      most = std::max(most, number);
      next = behind == next ? next + 1 : behind;
    }
    if (end != std::string_view::npos) at_ = end + 1;
    repeat(std::min(most, kMostNodes) + 1);
  }

  void repeat(int64_t times) {
    total_ -= atom_;
    add(atom_ * times + 1);
  }

  void add(int64_t nodes) {
    atom_ = std::min(nodes, kMostNodes + 1);
    total_ = std::min(total_ + atom_, 2 * kMostNodes);
    largest_ = std::max(largest_, total_);
  }

  const std::string_view text_;
  size_t at_ = 0;
  int64_t atom_ = 0, total_ = 0, largest_ = 0;  ///< nodes: of the last atom, of the group, at most
  std::vector<int64_t> groups_;                 ///< nodes of those that are open
  std::string problem_;
};

Status refusal(const std::string& text, const std::string& why) {
  return invalid_argument(fmt::format(
      "--filter is '{}'; it must be a POSIX extended regular expression ({})", text, why));
}

}  // namespace

/// The library's form, freed once.
struct IdFilter::Compiled {
  regex_t expression{};
  bool is_good = false;

  Compiled() = default;
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() {
    if (is_good) ::regfree(&expression);
  }
};

Result<IdFilter> IdFilter::parse(const std::string& text) {
  IdFilter filter;
  if (text.empty()) return filter;
  if (text.size() > kMostCharacters) {
    return invalid_argument(fmt::format("--filter has {} characters; it may have {} at most",
                                        text.size(), kMostCharacters));
  }
  std::string problem = ExpressionWalk(text).problem();
  if (!problem.empty()) return refusal(text, problem);
  auto compiled = std::make_shared<Compiled>();
  int error = ::regcomp(&compiled->expression, text.c_str(), REG_EXTENDED | REG_NOSUB);
  compiled->is_good = error == 0;
  if (error != 0) {
    std::array<char, 200> why{};
    ::regerror(error, &compiled->expression, why.data(), why.size());
    return refusal(text, why.data());
  }
  filter.compiled_ = std::move(compiled);
  return filter;
}

bool IdFilter::matches(const std::string& id) const {
  return compiled_ == nullptr || ::regexec(&compiled_->expression, id.c_str(), 0, nullptr, 0) == 0;
}

}  // namespace stagecoach
