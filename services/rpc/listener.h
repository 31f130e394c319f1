#ifndef FLOTILLA_SERVICES_RPC_LISTENER_H_
#define FLOTILLA_SERVICES_RPC_LISTENER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/base/host_name.h"
#include "services/base/owned_fd.h"

namespace flotilla {

// What hosts are called: as the system has it, but for what tests say here.
struct HostNames {
  // This host; with a domain behind it, it is this host too.
  std::string own = HostName();
  // Names, and the addresses that each means, in numbers. The system is not asked
  // for these.
  std::map<std::string, std::vector<std::string>> known;
};

// The sockets that listen at one address: non-blocking, and closed on exec.
//
// Not thread-safe.
class Listener {
 public:
  // `address` is "host:port" (port 0: any free one; no host: every interface),
  // "unix:path" or "unix-abstract:name". A name that means several addresses
  // (localhost: 127.0.0.1 and ::1) is listened to on all that this host has, at
  // one port. This host's own name, also with a domain, is every interface, with a
  // warning, where it means loopback here (Debian's 127.0.1.1), or none of this
  // host's addresses: a pod starts before DNS has its name, or forgets the one
  // before it. A socket file that a killed process left is replaced.
  //
  // Errors, with the remedy: kInvalidArgument if this host has no such address;
  // kUnavailable if something listens there; kAlreadyExists if the path is that
  // of another file; what the system says.
  static absl::StatusOr<Listener> Bind(const std::string& address,
                                       const HostNames& names = HostNames());

  Listener(Listener&&) = default;
  // Closes them and removes the socket's file.
  ~Listener();

  // The host as it was given, for certificates name it, with the port it got.
  const std::string& address() const { return address_; }

  const std::vector<OwnedFd>& sockets() const { return sockets_; }

 private:
  Listener() = default;

  static absl::StatusOr<Listener> BindPort(const std::string& host, int port,
                                           const HostNames& names);
  static absl::StatusOr<Listener> BindUnix(const std::string& address);

  std::string address_;
  std::string file_;
  std::vector<OwnedFd> sockets_;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_LISTENER_H_
