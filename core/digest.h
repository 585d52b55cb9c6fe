#pragma once

#include <memory>
#include <string>

#include "core/bytes.h"

namespace stagecoach {

/// SHA-256 of bytes given piece by piece. The library (OpenSSL) stays inside digest.cpp.
/// Thread rule: one thread at a time.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&& other) noexcept;
  Sha256& operator=(Sha256&& other) noexcept;

  /// Adds `size` bytes. Not after `hex`.
  void update(const void* data, ByteCount size);
  /// Ends the digest: 64 lower-case hexadecimal digits. Call once.
  std::string hex();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// SHA-256 of `size` bytes at `data`, in hexadecimal.
std::string sha256_hex(const void* data, ByteCount size);

}  // namespace stagecoach
