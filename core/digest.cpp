#include "core/digest.h"

#include <openssl/evp.h>
#include <utility>

#include "core/check.h"

namespace stagecoach {

struct Sha256::Impl {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  bool ended = false;

  ~Impl() { EVP_MD_CTX_free(context); }
};

// The calls below fail only without memory or without SHA-256 in the library: nothing a caller
// could do about, hence checks.
Sha256::Sha256() : impl_(std::make_unique<Impl>()) {
  STAGECOACH_CHECK(impl_->context != nullptr);
  STAGECOACH_CHECK(EVP_DigestInit_ex(impl_->context, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&& other) noexcept = default;
Sha256& Sha256::operator=(Sha256&& other) noexcept = default;

void Sha256::update(const void* data, ByteCount size) {
  STAGECOACH_CHECK(!impl_->ended && size >= 0);
  STAGECOACH_CHECK(EVP_DigestUpdate(impl_->context, data, static_cast<size_t>(size)) == 1);
}

std::string Sha256::hex() {
  STAGECOACH_CHECK(!std::exchange(impl_->ended, true));
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int count = 0;
  STAGECOACH_CHECK(EVP_DigestFinal_ex(impl_->context, bytes, &count) == 1);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

std::string sha256_hex(const void* data, ByteCount size) {
  Sha256 digest;
  digest.update(data, size);
  return digest.hex();
}

}  // namespace stagecoach
