#ifndef FLOTILLA_LAUNCHER_PLAYER_H_
#define FLOTILLA_LAUNCHER_PLAYER_H_

#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/base/subprocess.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// The checkpoint that a run's folder (its latest), or a checkpoint's own, means.
// Errors: kInvalidArgument, saying what `path` is instead.
absl::StatusOr<std::string> FindCheckpoint(const std::string& path);

// As RunPlayer, with its output appended to `log`, and nothing printed. Blocks
// until it ends. Errors: kCancelled at `stop`, once it is gone; those of
// Subprocess::Start.
absl::StatusOr<Subprocess::Exit> AwaitPlayer(
    const std::string& checkpoint, const std::vector<std::string>& flags,
    const RpcCredentials& credentials, const std::string& log,
    std::stop_token stop);

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
