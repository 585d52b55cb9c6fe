#pragma once

#include <string>
#include <string_view>

#include "testing/interceptor.h"

namespace stagecoach {

/// Damages or holds up what copies of one device and label bring.
class BadCopies final : public Interceptor {
 public:
  BadCopies(int device, std::string_view label, Verdict::Kind kind)
      : device_(device), label_(label), kind_(kind) {}
  Verdict before(const VerbCall& call) override {
    Verdict verdict;
    bool is_meant =
        call.verb == verbs::kCopy && call.device_index == device_ && call.label.view() == label_;
    if (is_meant) verdict.kind = kind_;
    return verdict;
  }
  void after(const VerbCall&, const Status&) override {}

 private:
  const int device_;
  const std::string label_;
  const Verdict::Kind kind_;
};

}  // namespace stagecoach
