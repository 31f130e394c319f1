#ifndef FLOTILLA_SERVICES_RPC_REACHABLE_ADDRESS_H_
#define FLOTILLA_SERVICES_RPC_REACHABLE_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace flotilla {

// How others in the run reach a server that listens on `address`: an address on
// every interface is replaced by the one this host has towards `coordinator`,
// host:port. May resolve a name.
// Errors: kUnavailable if there is no way to the coordinator.
absl::StatusOr<std::string> ReachableAddress(const std::string& address,
                                             const std::string& coordinator);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_REACHABLE_ADDRESS_H_
