#include "launcher/player.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "launcher/commands/command.h"
#include "launcher/programs.h"
#include "services/base/run_folder.h"
#include "services/base/shutdown.h"
#include "services/base/status_macros.h"
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

absl::StatusOr<Subprocess::Exit> AwaitPlayer(
    const std::string& checkpoint, const std::vector<std::string>& flags,
    const RpcCredentials& credentials, const std::string& log,
    std::stop_token stop) {
  ASSIGN_OR_RETURN(const std::string program, FindProgram("flotilla-learner"));
  SubprocessOptions player;
  player.argv = {program, "--evaluate=" + checkpoint};
  player.argv.insert(player.argv.end(), flags.begin(), flags.end());
  for (const std::string& flag : CredentialFlags(credentials)) {
    player.argv.push_back(flag);
  }
  player.log_path = log;
  ASSIGN_OR_RETURN(const auto learner, Subprocess::Start(player));
  for (;;) {
    if (stop.stop_requested()) return absl::CancelledError("told to stop");
    if (const auto exit = learner->Wait(absl::Milliseconds(50))) return *exit;
  }
}

int RunPlayer(const std::string& command, const std::string& checkpoint,
              const std::vector<std::string>& flags,
              const RpcCredentials& credentials, const std::string& scratch) {
  const std::string log = scratch + "/log";
  const auto signals = ShutdownSignals::Install();
  const auto exit =
      AwaitPlayer(checkpoint, flags, credentials, log,
                  signals.ok() ? (*signals)->Stop() : std::stop_token());
  if (absl::IsCancelled(exit.status())) {
    return 128 + (*signals)->first_signal();
  }
  if (!exit.ok()) return Report(command, exit.status());
  if (exit->code == 0) return kExitDone;
  std::fprintf(stderr, "%s", WholeFile(log).value_or("").c_str());
  Report(command, absl::InternalError(absl::StrCat("the player ended with ",
                                                   exit->ToString())));
  return exit->code == kExitUsage ? kExitUsage : kExitFailed;
}

}  // namespace flotilla
