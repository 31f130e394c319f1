#include "services/base/sha256.h"

#include <glog/logging.h>
#include <openssl/evp.h>

namespace flotilla {

struct Sha256::Context {
  EVP_MD_CTX* md = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(md); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  CHECK(context_->md != nullptr);
  CHECK_EQ(EVP_DigestInit_ex(context_->md, EVP_sha256(), nullptr), 1);
}

Sha256::~Sha256() = default;

void Sha256::Update(const void* data, size_t size) {
  CHECK_EQ(EVP_DigestUpdate(context_->md, data, size), 1);
}

std::string Sha256::HexDigest() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  CHECK_EQ(EVP_DigestFinal_ex(context_->md, digest, &size), 1);
  constexpr char kHex[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * size);
  for (unsigned int i = 0; i < size; ++i) {
    hex.push_back(kHex[digest[i] >> 4]);
    hex.push_back(kHex[digest[i] & 15]);
  }
  return hex;
}

std::string Sha256Hex(std::span<const std::byte> bytes) {
  Sha256 sha256;
  sha256.Update(bytes.data(), bytes.size());
  return sha256.HexDigest();
}

std::string Sha256Hex(const std::string& bytes) {
  return Sha256Hex(std::as_bytes(std::span(bytes)));
}

}  // namespace flotilla
