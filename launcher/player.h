#ifndef FLOTILLA_LAUNCHER_PLAYER_H_
#define FLOTILLA_LAUNCHER_PLAYER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// The checkpoint that a run's folder (its latest), or a checkpoint's own, means.
// Errors: kInvalidArgument, saying what `path` is instead.
absl::StatusOr<std::string> FindCheckpoint(const std::string& path);

// Runs a flotilla-learner that plays with `checkpoint`, told what by `flags`
// (learner/evaluate_main.h), and with its output in scratch/log. `credentials` are
// for an env server that runs already (env.server). Blocks until it ends, or a
// signal comes. Returns the exit code to end with; what went wrong has been
// printed, for flotilla `command`.
int RunPlayer(const std::string& command, const std::string& checkpoint,
              const std::vector<std::string>& flags,
              const RpcCredentials& credentials, const std::string& scratch);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_PLAYER_H_
