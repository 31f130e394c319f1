#ifndef FLOTILLA_LAUNCHER_DOCTOR_H_
#define FLOTILLA_LAUNCHER_DOCTOR_H_

#include <optional>
#include <string>
#include <vector>

#include "services/rpc/credentials.h"

namespace flotilla {

// One thing that was looked at.
struct Finding {
  enum class State { kGood, kNote, kBad };
  State state;
  std::string name;    // "GPUs"
  std::string what;    // what was found
  std::string remedy;  // the command that mends it; "" if nothing is to mend
};

// What the doctor is asked to look at besides this machine.
struct DoctorOptions {
  std::optional<std::string> run_dir;      // is it on shared storage?
  std::optional<std::string> coordinator;  // does it answer?
  RpcCredentials credentials;
};

// Looks at this machine: programs and their versions, GPUs, LibTorch,
// environments and ROMs, Gymnasium, the default port, shared memory, cores.
// Starts short-lived programs; changes nothing. Blocks for some seconds.
std::vector<Finding> Examine(const DoctorOptions& options);

// One line a finding, its remedy below.
std::string Describe(const std::vector<Finding>& findings);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_DOCTOR_H_
