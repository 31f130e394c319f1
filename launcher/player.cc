#include "launcher/player.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "launcher/commands/command.h"
#include "launcher/programs.h"
#include "services/base/run_folder.h"
#include "services/base/shutdown.h"
#include "services/base/subprocess.h"
#include "services/base/text_file.h"
#include "services/rpc/credential_flags.h"

namespace flotilla {

absl::StatusOr<std::string> FindCheckpoint(const std::string& path) {
  const RunFolder run(path);
  if (run.HasCheckpoint()) return run.latest_checkpoint();
  if (CheckpointFolder(path).Exists()) return path;
  if (run.HoldsRun()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the run in ", path, " has no checkpoint yet"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", path, "\" is neither a run's folder nor a checkpoint"));
}

int RunPlayer(const std::string& command, const std::string& checkpoint,
              const std::vector<std::string>& flags,
              const RpcCredentials& credentials, const std::string& scratch) {
  const auto program = FindProgram("flotilla-learner");
  if (!program.ok()) return Report(command, program.status());
  const std::string log = scratch + "/log";
  const auto signals = ShutdownSignals::Install();
  SubprocessOptions player;
  player.argv = {*program, "--evaluate=" + checkpoint};
  player.argv.insert(player.argv.end(), flags.begin(), flags.end());
  for (const std::string& flag : CredentialFlags(credentials)) {
    player.argv.push_back(flag);
  }
  player.log_path = log;
  const auto learner = Subprocess::Start(player);
  if (!learner.ok()) return Report(command, learner.status());
  for (;;) {
    if (signals.ok() && (*signals)->first_signal() != 0) {
      return 128 + (*signals)->first_signal();
    }
    const auto exit = (*learner)->Wait(absl::Milliseconds(50));
    if (!exit) continue;
    if (exit->code == 0) return kExitDone;
    std::fprintf(stderr, "%s", WholeFile(log).value_or("").c_str());
    Report(command, absl::InternalError(absl::StrCat("the player ended with ",
                                                     exit->ToString())));
    return exit->code == kExitUsage ? kExitUsage : kExitFailed;
  }
}

}  // namespace flotilla
