#include "services/rpc/listener.h"

#include <glog/logging.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "services/base/status_macros.h"
#include "services/rpc/credentials.h"

namespace flotilla {
namespace {

constexpr int kSocketType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
// For a free port that is free at all of a name's addresses.
constexpr int kMostTries = 16;

struct SocketAddress {
  sockaddr_storage name = {};
  socklen_t size = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&name); }
  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&name);
  }
  bool is_v6() const { return name.ss_family == AF_INET6; }
  in_port_t* port() {
    return is_v6() ? &reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                   : &reinterpret_cast<sockaddr_in*>(&name)->sin_port;
  }
  bool operator==(const SocketAddress& other) const {
    return size == other.size && std::memcmp(&name, &other.name, size) == 0;
  }
};

// In the host's order, of IPv4.
uint32_t Ip4(const SocketAddress& address) {
  return ntohl(
      reinterpret_cast<const sockaddr_in*>(&address.name)->sin_addr.s_addr);
}

absl::Status CannotListen(const std::string& address, int error) {
  const std::string what = absl::StrCat("cannot listen on ", address, ": ");
  switch (error) {
    case EADDRINUSE:
      return absl::UnavailableError(absl::StrCat(
          what, "something listens there already. Stop it, or choose another ",
          IsUnixAddress(address) ? "path"
                                 : "address (port 0 takes any free one)"));
    case EADDRNOTAVAIL:
      return absl::InvalidArgumentError(absl::StrCat(
          what,
          "this host has no such address. 0.0.0.0 listens on all of its own"));
    default:
      return absl::ErrnoToStatus(error,
                                 absl::StrCat("cannot listen on ", address));
  }
}

// What `host` means, with port 0. Empty if it means nothing.
std::vector<SocketAddress> Resolve(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return {};
  std::vector<SocketAddress> result;
  for (const addrinfo* i = found; i != nullptr; i = i->ai_next) {
    if (i->ai_family != AF_INET && i->ai_family != AF_INET6) continue;
    SocketAddress address;
    std::memcpy(&address.name, i->ai_addr, i->ai_addrlen);
    address.size = i->ai_addrlen;
    bool known = false;
    for (const SocketAddress& other : result) known |= other == address;
    if (!known) result.push_back(address);
  }
  freeaddrinfo(found);
  return result;
}

std::vector<SocketAddress> Resolve(const std::string& host,
                                   const HostNames& names) {
  const auto known = names.known.find(host);
  if (known == names.known.end()) return Resolve(host);
  std::vector<SocketAddress> result;
  for (const std::string& number : known->second) {
    for (const SocketAddress& address : Resolve(number)) {
      result.push_back(address);
    }
  }
  return result;
}

// What stands for every interface: the first that can be had.
std::vector<SocketAddress> EveryInterface() {
  std::vector<SocketAddress> result = Resolve("::");
  for (const SocketAddress& v4 : Resolve("0.0.0.0")) result.push_back(v4);
  return result;
}

// 0, or why not. `both` also takes what comes over IPv4.
int ListenAt(const SocketAddress& address, bool both, OwnedFd* result) {
  OwnedFd fd(socket(address.name.ss_family, kSocketType, 0));
  if (fd.get() < 0) return errno;
  const int one = 1, v6_only = both ? 0 : 1;
  // gRPC's own choice for connections with keepalive, inherited by them.
  const unsigned int user_timeout_ms = 10'000;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  setsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms,
             sizeof(user_timeout_ms));
  if (address.is_v6()) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
  }
  if (bind(fd.get(), address.get(), address.size) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    return errno;
  }
  *result = std::move(fd);
  return 0;
}

int PortOf(int fd) {
  SocketAddress address;
  address.size = sizeof(address.name);
  if (getsockname(fd, address.get(), &address.size) != 0) return 0;
  return ntohs(*address.port());
}

bool IsLoopback(const SocketAddress& address) {
  return address.is_v6()
             ? IN6_IS_ADDR_LOOPBACK(
                   &reinterpret_cast<const sockaddr_in6*>(&address.name)
                        ->sin6_addr)
             : (Ip4(address) >> 24) == IN_LOOPBACKNET;
}

// Whether a name, `own` if it is this host's, means loopback alone: Debian's
// installer has a host's name mean 127.0.1.1, which others that use the name do not.
bool MeansLoopback(bool own, const std::vector<SocketAddress>& addresses) {
  constexpr uint32_t kDebians = 0x7f0001;  // 127.0.1.x
  if (addresses.empty() || !std::ranges::all_of(addresses, IsLoopback)) {
    return false;
  }
  return own ||
         std::ranges::any_of(addresses, [](const SocketAddress& address) {
           return !address.is_v6() && (Ip4(address) >> 8) == kDebians;
         });
}

bool IsNumeric(const std::string& host) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

// A path in the file system; "" of an abstract name.
std::string PathOf(absl::string_view address) {
  if (!absl::ConsumePrefix(&address, "unix:")) return "";
  if (absl::StartsWith(address, "//")) address.remove_prefix(2);
  return std::string(address);
}

// Removes a socket's file if nobody listens there: else the address would be
// busy for ever.
absl::Status ClearStaleSocket(const std::string& address,
                              const std::string& path,
                              const SocketAddress& name) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return absl::AlreadyExistsError(absl::StrCat(
        "cannot listen on ", address, ": there is a file that is no socket"));
  }
  const OwnedFd fd(socket(AF_UNIX, kSocketType, 0));
  if (connect(fd.get(), name.get(), name.size) == 0 || errno == EAGAIN) {
    return CannotListen(address, EADDRINUSE);
  }
  unlink(path.c_str());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Listener> Listener::Bind(const std::string& address,
                                        const HostNames& names) {
  if (IsUnixAddress(address)) return BindUnix(address);
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == address.npos ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on \"", address,
                     "\": want HOST:PORT (port 0 for any free one), unix:PATH "
                     "or unix-abstract:NAME"));
  }
  return BindPort(address.substr(0, colon), port, names);
}

absl::StatusOr<Listener> Listener::BindPort(const std::string& given_host,
                                            int given_port,
                                            const HostNames& names) {
  const std::string shown = given_host.empty() ? "0.0.0.0" : given_host;
  const std::string given = absl::StrCat(shown, ":", given_port);
  std::string host = shown;
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  }
  // One socket for every interface, where there is IPv6.
  bool every = host == "0.0.0.0" || host == "::";
  const bool named = !every && !IsLocalAddress(given) && !IsNumeric(host);
  const bool own =
      named && (host == names.own || absl::StartsWith(host, names.own + "."));
  std::vector<SocketAddress> addresses =
      host == "0.0.0.0" ? EveryInterface() : Resolve(host, names);
  if (addresses.empty() && !own) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", given, ": no such host"));
  }
  const auto listen_everywhere = [&](const char* meaning) {
    LOG(WARNING) << host << " means " << meaning << ": listening on every "
                 << "interface, where others find it";
    every = true;
    addresses = EveryInterface();
  };
  if (named && MeansLoopback(own, addresses)) {
    listen_everywhere("loopback on this host");
  }
  for (int tries = 1;; ++tries) {
    Listener result;
    int port = given_port, error = EADDRNOTAVAIL;
    bool taken = false, elsewhere = true;
    for (SocketAddress address : addresses) {
      *address.port() = htons(static_cast<in_port_t>(port));
      OwnedFd fd;
      const int failed = ListenAt(address, every, &fd);
      taken |= failed == EADDRINUSE;
      if (taken) break;
      if (failed != 0) {
        error = failed;
        elsewhere &= failed == EADDRNOTAVAIL || failed == EAFNOSUPPORT;
        continue;
      }
      if (port == 0) port = PortOf(fd.get());
      result.sockets_.push_back(std::move(fd));
      if (every) break;
    }
    if (taken && given_port == 0 && tries < kMostTries) continue;
    if (taken) return CannotListen(given, EADDRINUSE);
    if (result.sockets_.empty() && own && !every && elsewhere) {
      listen_everywhere(addresses.empty() ? "nothing so far"
                                          : "no address of this host");
      continue;
    }
    if (result.sockets_.empty()) return CannotListen(given, error);
    result.address_ = absl::StrCat(shown, ":", port);
    return result;
  }
}

absl::StatusOr<Listener> Listener::BindUnix(const std::string& address) {
  const std::string path = PathOf(address);
  const bool abstract = absl::StartsWith(address, "unix-abstract:");
  // An abstract name begins with a zero.
  const std::string bytes =
      abstract
          ? std::string(1, '\0') + address.substr(std::strlen("unix-abstract:"))
          : path;
  SocketAddress name;
  auto* const unix_name = reinterpret_cast<sockaddr_un*>(&name.name);
  const size_t most = sizeof(unix_name->sun_path) - 1;
  if (bytes.size() < (abstract ? 2 : 1) || bytes.size() > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot listen on ", address, ": the ", abstract ? "name" : "path",
        " has ", bytes.size(), " bytes, want 1 to ", most));
  }
  unix_name->sun_family = AF_UNIX;
  std::memcpy(unix_name->sun_path, bytes.data(), bytes.size());
  name.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                     bytes.size() + (abstract ? 0 : 1));
  if (!abstract) RETURN_IF_ERROR(ClearStaleSocket(address, path, name));
  OwnedFd fd(socket(AF_UNIX, kSocketType, 0));
  if (fd.get() < 0 || bind(fd.get(), name.get(), name.size) != 0) {
    return CannotListen(address, errno);
  }
  Listener result;
  result.address_ = address;
  result.file_ = path;
  if (listen(fd.get(), SOMAXCONN) != 0) return CannotListen(address, errno);
  result.sockets_.push_back(std::move(fd));
  return result;
}

Listener::~Listener() {
  if (!sockets_.empty() && !file_.empty()) unlink(file_.c_str());
}

}  // namespace flotilla
