#include "learner/collective/local_address.h"

#include <glog/logging.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "learner/collective/rendezvous.h"
#include "services/base/text_file.h"

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

// Of "host:port"; "" of a unix socket.
std::string HostPart(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (absl::StartsWith(address, "unix") || colon == std::string::npos) {
    return "";
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

std::string InterfaceOf(const std::string& address) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  std::string name;
  for (const ifaddrs* at = all; at != nullptr && name.empty();
       at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size =
        family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (NumericHost(at->ifa_addr, size) == address) name = at->ifa_name;
  }
  ::freeifaddrs(all);
  return name;
}

void NameSocketInterface(const v1::Assignment& assignment) {
  if (OnOneHost(assignment)) return;
  const auto address = LocalAddressFor(assignment);
  const std::string interface = address.ok() ? InterfaceOf(*address) : "";
  if (interface.empty()) return;  // who needs it says what is wrong
  // "=": not also those whose names begin like it.
  const std::pair<const char*, std::string> variables[] = {
      {"NCCL_SOCKET_IFNAME", "=" + interface},
      {"GLOO_SOCKET_IFNAME", interface}};
  for (const auto& [name, value] : variables) {
    if (std::getenv(name) != nullptr) continue;
    ::setenv(name, value.c_str(), /*overwrite=*/0);
    LOG(INFO) << name << "=" << value << ", the way to the other hosts from "
              << *address;
  }
}

absl::StatusOr<std::string> LocalAddressFor(const v1::Assignment& assignment) {
  if (OnOneHost(assignment)) return "127.0.0.1";
  const v1::Member& self = assignment.learner(assignment.rank());
  std::set<std::string> tried;
  std::string reasons;
  // Names first: where there are several networks, they say which one is meant.
  for (const bool by_name : {true, false}) {
    for (const v1::Member& member : assignment.learner()) {
      const std::string& place = by_name ? member.host() : member.ip();
      if (OnSameHost(member, self) || place.empty() ||
          !tried.insert(place).second) {
        continue;
      }
      const auto address = LocalAddressTowards(place);
      if (address.ok() && !IsLoopback(*address)) return address;
      absl::StrAppend(&reasons, "; ",
                      address.ok() ? absl::StrCat("host \"", place,
                                                  "\" resolves to loopback")
                                   : std::string(address.status().message()));
    }
  }
  // What leads to the coordinator leads to the others too.
  if (!self.ip().empty()) return self.ip();
  return absl::FailedPreconditionError(absl::StrCat(
      "host \"", self.host(),
      "\" knows no address of its own that its peers can reach", reasons,
      "; name the network interface: GLOO_SOCKET_IFNAME=eth0"));
}

std::string IpTowards(const std::string& coordinator) {
  const std::string host = HostPart(coordinator);
  const auto address =
      host.empty() ? absl::NotFoundError("") : LocalAddressTowards(host);
  return address.ok() && !IsLoopback(*address) ? *address : "";
}

std::string NetworkOfThisProcess() {
  char link[64] = "";
  if (::readlink("/proc/self/ns/net", link, sizeof(link) - 1) < 0) return "";
  return absl::StrCat(FirstLine("/proc/sys/kernel/random/boot_id"), " ", link);
}

}  // namespace flotilla
