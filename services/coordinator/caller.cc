#include "services/coordinator/caller.h"

#include "services/base/sha256.h"
#include "services/coordinator/member_metadata.h"

namespace flotilla {
namespace {

// Too short can be guessed; longer than this is no secret of ours.
constexpr size_t kShortest = 32;
constexpr size_t kLongest = 256;

std::string Value(const grpc::ServerContextBase& context, const char* name) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(name);
  if (found == metadata.end()) return "";
  return {found->second.data(), found->second.size()};
}

}  // namespace

Caller CallerOf(const grpc::ServerContextBase& context) {
  const std::string secret = Value(context, kSecretMetadata);
  const bool usable = secret.size() >= kShortest && secret.size() <= kLongest;
  return {Value(context, kMemberMetadata), usable ? Sha256Hex(secret) : ""};
}

}  // namespace flotilla
