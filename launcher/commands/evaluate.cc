#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "launcher/commands/command.h"
#include "launcher/numbers.h"
#include "launcher/programs.h"
#include "services/base/config.h"
#include "services/base/json.h"
#include "services/base/run_folder.h"
#include "services/base/scratch_folder.h"
#include "services/base/shutdown.h"
#include "services/base/status_macros.h"
#include "services/base/subprocess.h"
#include "services/base/text_file.h"
#include "services/rpc/credential_flags.h"

namespace flotilla {
namespace {

// The checkpoint that a run's folder, or a checkpoint's own, means.
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

// As many as the run's own evaluations play.
int DefaultEpisodes(const std::string& checkpoint) {
  const auto config = LoadRunConfig(CheckpointFolder(checkpoint).config(), {});
  return config.ok() ? config->evaluation().episodes() : 10;
}

// Runs the learner as a player. Returns the exit code to end with.
int Play(const std::string& checkpoint, int episodes,
         const RpcCredentials& credentials, const std::string& scratch) {
  const auto program = FindProgram("flotilla-learner");
  if (!program.ok()) return Report("evaluate", program.status());
  const std::string log = scratch + "/log";
  const auto signals = ShutdownSignals::Install();
  SubprocessOptions player;
  player.argv = {*program, "--evaluate=" + checkpoint,
                 absl::StrCat("--episodes=", episodes),
                 "--output=" + scratch + "/result.json"};
  for (const std::string& flag : CredentialFlags(credentials)) {
    player.argv.push_back(flag);
  }
  player.log_path = log;
  const auto learner = Subprocess::Start(player);
  if (!learner.ok()) return Report("evaluate", learner.status());
  for (;;) {
    if (signals.ok() && (*signals)->first_signal() != 0) {
      return 128 + (*signals)->first_signal();
    }
    const auto exit = (*learner)->Wait(absl::Milliseconds(50));
    if (!exit) continue;
    if (exit->code == 0) return kExitDone;
    std::fprintf(stderr, "%s", WholeFile(log).value_or("").c_str());
    Report("evaluate", absl::InternalError(absl::StrCat(
                           "the player ended with ", exit->ToString())));
    return exit->code == kExitUsage ? kExitUsage : kExitFailed;
  }
}

// What learner/evaluate_main.h says is in it.
int Show(const std::string& result_path, bool json) {
  const std::optional<std::string> text = WholeFile(result_path);
  if (json && text) {
    std::printf("%s", text->c_str());
    return kExitDone;
  }
  const auto result = ParseJson(text.value_or(""));
  if (!result.ok()) return Report("evaluate", result.status());
  const auto member = [&](const char* name) {
    return result->contains(name) ? result->at(name) : Json();
  };
  const auto number = [&](const char* name) {  // null if it is not finite
    const Json value = member(name);
    return value.is_number() ? value.get<double>() : std::nan("");
  };
  std::printf(
      "%s  mean return %.2f over %s episodes (%.1f to %.1f)\n",
      member("env_id").is_string() ? member("env_id").get<std::string>().c_str()
                                   : "",
      number("mean_return"),
      WithCommas(static_cast<int64_t>(member("episodes").size())).c_str(),
      number("min_return"), number("max_return"));
  return kExitDone;
}

}  // namespace

int RunEvaluate(const Arguments& arguments) {
  std::optional<int> episodes;
  bool json = false;
  CommandLine line("flotilla evaluate RUN_OR_CHECKPOINT [flags]",
                   "Plays episodes with a trained policy: a run's latest "
                   "checkpoint, or the one named\n(RUN/checkpoints/best).");
  line.Int("--episodes", "N", 1,
           "how many (default: evaluation.episodes of the run)", &episodes);
  line.Switch("--json", "print every episode, as JSON", &json);
  // For an env server that runs already (env.server).
  RpcCredentials credentials;
  AddCredentialFlags(&credentials, &line);
  const ParsedLine parsed = ParseLine("evaluate", arguments, 1, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  if (parsed.positional.empty()) {
    return ReportUsage("evaluate", absl::InvalidArgumentError(
                                       "name a run's folder or a checkpoint"));
  }
  const auto checkpoint = FindCheckpoint(parsed.positional[0]);
  if (!checkpoint.ok()) return Report("evaluate", checkpoint.status());

  const ScratchFolder scratch;
  if (!scratch.status().ok()) return Report("evaluate", scratch.status());
  int code = Play(*checkpoint, episodes.value_or(DefaultEpisodes(*checkpoint)),
                  credentials, scratch.path());
  if (code == kExitDone) code = Show(scratch.path() + "/result.json", json);
  return code;
}

}  // namespace flotilla
