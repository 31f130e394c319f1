#ifndef FLOTILLA_LAUNCHER_FIND_COORDINATOR_H_
#define FLOTILLA_LAUNCHER_FIND_COORDINATOR_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/coordinator.pb.h"
#include "services/base/run_folder.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// The run that `flotilla status`, `flotilla stop` and `flotilla set` are about.
struct RunAddress {
  std::string address;  // HOST:PORT of its coordinator
  std::string run_dir;  // "" if only the address was given
  bool assumed =
      false;  // the address: nobody named one, and runs/ holds no run
};

// From --coordinator, or the folder's coordinator.address, or, where neither is
// given, the newest folder in runs/, or port 29400 of this host.
// Errors: kInvalidArgument if both are given or the folder holds no run.
absl::StatusOr<RunAddress> FindCoordinator(
    const std::optional<std::string>& coordinator,
    const std::optional<std::string>& run_dir);

// What to say of a run whose coordinator did not answer, but for `error`: that it is
// over, if its folder says so, or that there is none.
absl::Status ExplainSilence(const RunAddress& run, const absl::Status& error);

// `credentials`, or where they have no token, those with the run's own, if its
// folder ("": none is known) holds one that we may read.
RpcCredentials WithRunToken(const RpcCredentials& credentials,
                            const std::string& run_dir);

// Of the coordinator that has written the run's journal, whose first lines name it;
// "" if there is none.
std::string JournalEpoch(const RunFolder& folder);

// Whether `status`, which came from that address, is of the run in that folder:
// ports are used again.
// Errors: kUnavailable, naming the run that is there now.
absl::Status CheckSameRun(const RunAddress& run, const v1::Status& status);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_FIND_COORDINATOR_H_
