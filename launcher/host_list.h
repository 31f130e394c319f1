#ifndef FLOTILLA_LAUNCHER_HOST_LIST_H_
#define FLOTILLA_LAUNCHER_HOST_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace flotilla {

// The hosts that a Slurm host list names, in its order:
//
//   "gpu[01-03,7],login"    -> gpu01 gpu02 gpu03 gpu7 login
//   "rack[0-1]n[1-2]"       -> rack0n1 rack0n2 rack1n1 rack1n2
//
// Our own, because `scontrol show hostnames` is often missing in containers.
// Errors: kInvalidArgument, quoting the list.
absl::StatusOr<std::vector<std::string>> ParseHostList(const std::string& list);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_HOST_LIST_H_
