#include "learner/collective/local_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "learner/collective/rendezvous.h"

namespace flotilla {
namespace {

std::string NumericHost(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST] = "";
  ::getnameinfo(address, size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return host;
}

// The address that a datagram to `remote` would leave from; "" if none would.
std::string RouteTo(const addrinfo& remote) {
  const int fd = ::socket(remote.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "";
  sockaddr_storage local{};
  socklen_t size = sizeof(local);
  std::string address;
  // Connecting a datagram socket looks up the route and sends nothing.
  if (::connect(fd, remote.ai_addr, remote.ai_addrlen) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size) == 0) {
    address = NumericHost(reinterpret_cast<sockaddr*>(&local), size);
  }
  ::close(fd);
  return address;
}

bool IsLoopback(const std::string& address) {
  return absl::StartsWith(address, "127.") || address == "::1";
}

// Where a member can be found: its services' address if it has one on a
// network, else its host's name.
std::string HostOf(const v1::Member& member) {
  const std::string& address = member.address();
  const size_t colon = address.rfind(':');
  if (address.empty() || absl::StartsWith(address, "unix:") ||
      colon == std::string::npos) {
    return member.host();
  }
  return std::string(
      absl::StripSuffix(absl::StripPrefix(address.substr(0, colon), "["), "]"));
}

}  // namespace

absl::StatusOr<std::string> LocalAddressTowards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  // Port 9 stands for any.
  const int error = ::getaddrinfo(host.c_str(), "9", &hints, &found);
  if (error != 0) {
    return absl::NotFoundError(absl::StrCat("cannot resolve host \"", host,
                                            "\": ", ::gai_strerror(error)));
  }
  std::string address;
  for (const addrinfo* at = found; at != nullptr && address.empty();
       at = at->ai_next) {
    address = RouteTo(*at);
  }
  ::freeaddrinfo(found);
  if (address.empty()) {
    return absl::UnavailableError(
        absl::StrCat("no route to host \"", host, "\""));
  }
  return address;
}

absl::StatusOr<std::string> LocalAddressFor(const v1::Assignment& assignment) {
  if (OnOneHost(assignment)) return "127.0.0.1";
  const std::string& own = assignment.learner(assignment.rank()).host();
  std::set<std::string> tried;
  std::string reasons;
  for (const v1::Member& member : assignment.learner()) {
    if (member.host() == own || !tried.insert(HostOf(member)).second) continue;
    const auto address = LocalAddressTowards(HostOf(member));
    if (address.ok() && !IsLoopback(*address)) return address;
    absl::StrAppend(&reasons, "; ",
                    address.ok() ? absl::StrCat("host \"", HostOf(member),
                                                "\" resolves to loopback")
                                 : std::string(address.status().message()));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "host \"", own, "\" knows no address of its own that its peers can reach",
      reasons, "; name the network interface: GLOO_SOCKET_IFNAME=eth0"));
}

}  // namespace flotilla
