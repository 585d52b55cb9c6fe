#pragma once

#include <span>
#include <string>

#include "core/status.h"

namespace stagecoach {

/// A library opened at run time. Stays open until the program ends, because driver libraries have
/// threads of their own that do not survive being unloaded. Plain handle; free to copy.
class SharedLibrary {
 public:
  /// Opens the first of `names` that the loader finds. The error lists every name and what the
  /// loader said about it.
  static Result<SharedLibrary> open(std::span<const std::string> names);

  /// The name under which it was found.
  const std::string& name() const { return name_; }
  /// Address of a symbol, or null.
  void* find(const char* symbol) const;

 private:
  SharedLibrary(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}

  void* handle_;
  std::string name_;
};

}  // namespace stagecoach
