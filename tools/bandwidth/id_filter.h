#pragma once

#include <memory>
#include <string>

#include "core/status.h"

namespace stagecoach {

/// A POSIX extended regular expression that ids must match somewhere (--filter). Matching never
/// backtracks: it takes time in proportion to the id and the expression, whatever they are.
/// Thread rule: one thread at a time.
class IdFilter {
 public:
  /// Everything matches where `text` is empty. Errors: invalid argument, naming --filter, where it
  /// is no such expression, is longer than 1000 characters, or repeats so much within what is
  /// repeated that it would take memory without limit.
  static Result<IdFilter> parse(const std::string& text);

  bool matches(const std::string& id) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace stagecoach
