#pragma once

#include <cstddef>
#include <memory>

#include "core/bytes.h"
#include "core/status.h"

namespace stagecoach {

/// Ordinary host memory straight from the system: zero, of exactly the asked size, in huge pages
/// where there are any, and taking no memory where it was never touched. Owns it.
class PageableMemory {
 public:
  PageableMemory() = default;
  /// Errors: resource exhausted, with the system's reason, what was asked for and what is free.
  static Result<PageableMemory> create(ByteCount size);

  std::byte* data() const { return data_.get(); }

 private:
  struct Unmap {
    size_t size;
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Unmap> data_;
};

}  // namespace stagecoach
