#pragma once

#include <optional>
#include <stdlib.h>
#include <string>

namespace stagecoach {

/// Sets an environment variable for one scope; null unsets it.
class EnvironmentValue {
 public:
  EnvironmentValue(const char* name, const char* value) : name_(name) {
    if (const char* before = getenv(name)) before_ = before;
    change_to(value);
  }
  EnvironmentValue(const EnvironmentValue&) = delete;
  EnvironmentValue& operator=(const EnvironmentValue&) = delete;
  ~EnvironmentValue() { change_to(before_ ? before_->c_str() : nullptr); }

 private:
  void change_to(const char* value) {
    if (value != nullptr) {
      setenv(name_, value, 1);
    } else {
      unsetenv(name_);
    }
  }

  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace stagecoach
