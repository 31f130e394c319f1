#ifndef FLOTILLA_LEARNER_COLLECTIVE_LOCAL_ADDRESS_H_
#define FLOTILLA_LEARNER_COLLECTIVE_LOCAL_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "flotilla/v1/coordinator.pb.h"

namespace flotilla {

// This host's IP address as its peers in `assignment` can reach it: loopback if
// all are on one host, else the local end of the route to one on another host, by its
// name or its Member.ip, or else its own Member.ip. Sends nothing.
// Errors: kFailedPrecondition, naming the hosts tried, if there is none of these, or
// only loopback.
absl::StatusOr<std::string> LocalAddressFor(const v1::Assignment& assignment);

// The network interface that has this IP address: "eth0"; "" if none has.
std::string InterfaceOf(const std::string& address);

// Where the learners of `assignment` are on several hosts: names the interface of
// LocalAddressFor in NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME, for those that
// are not set. NCCL would guess, by a rule that knows no routes.
void NameSocketInterface(const v1::Assignment& assignment);

// The local end of the route to `host`, a name or an IP address.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host);

// Member.ip: this host's IP address on the way to a coordinator at "host:port"; "" where
// that is loopback, a unix socket, or nowhere. May resolve a name.
std::string IpTowards(const std::string& coordinator);

// Member.network: equal in two processes whose loopback is the same.
std::string NetworkOfThisProcess();

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_COLLECTIVE_LOCAL_ADDRESS_H_
