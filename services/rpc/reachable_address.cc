#include "services/rpc/reachable_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/rpc/credentials.h"

namespace flotilla {
namespace {

absl::Status NoWay(const std::string& coordinator) {
  return absl::UnavailableError(
      absl::StrCat("no network leads to the coordinator ", coordinator,
                   "; check its name, or listen on one address of this host"));
}

// The local end of a datagram socket towards `peer`, in numbers. Sends nothing.
absl::StatusOr<std::string> HostTowards(const std::string& peer) {
  const size_t colon = peer.rfind(':');
  if (colon == std::string::npos) return NoWay(peer);
  std::string host = peer.substr(0, colon);
  if (absl::StartsWith(host, "[")) host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), peer.c_str() + colon + 1, &hints, &found) !=
      0) {
    return NoWay(peer);
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found,
                                                             freeaddrinfo);
  for (const addrinfo* i = found; i != nullptr; i = i->ai_next) {
    const int fd = socket(i->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage local = {};
    socklen_t size = sizeof(local);
    char name[NI_MAXHOST];
    const bool ok =
        connect(fd, i->ai_addr, i->ai_addrlen) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&local), size, name,
                    sizeof(name), nullptr, 0, NI_NUMERICHOST) == 0;
    close(fd);
    if (!ok) continue;
    return i->ai_family == AF_INET6 ? absl::StrCat("[", name, "]")
                                    : std::string(name);
  }
  return NoWay(peer);
}

}  // namespace

absl::StatusOr<std::string> ReachableAddress(const std::string& address,
                                             const std::string& coordinator) {
  if (IsUnixAddress(address)) return address;
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  if (host != "0.0.0.0" && host != "[::]") return address;
  ASSIGN_OR_RETURN(const std::string towards, HostTowards(coordinator));
  return absl::StrCat(towards, address.substr(colon));
}

}  // namespace flotilla
