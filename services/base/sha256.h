#ifndef FLOTILLA_SERVICES_BASE_SHA256_H_
#define FLOTILLA_SERVICES_BASE_SHA256_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace flotilla {

// The SHA-256 digest (FIPS 180-4) of `bytes`: 64 lower-case hex digits.
std::string Sha256Hex(const std::string& bytes);
std::string Sha256Hex(std::span<const std::byte> bytes);

// The same digest of bytes that come piece by piece.
//
// Not thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();

  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(const void* data, size_t size);

  // The digest of all that was given. Call it once, last.
  std::string HexDigest();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_SHA256_H_
