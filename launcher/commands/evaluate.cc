#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "google/protobuf/struct.pb.h"
#include "launcher/commands/command.h"
#include "launcher/numbers.h"
#include "launcher/programs.h"
#include "launcher/run_folder.h"
#include "launcher/summary.h"
#include "services/base/config.h"
#include "services/base/shutdown.h"
#include "services/base/status_macros.h"
#include "services/base/subprocess.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

// The checkpoint that a run's folder, or a checkpoint's own, means.
absl::StatusOr<std::string> FindCheckpoint(const std::string& path) {
  std::error_code error;
  const RunFolder run(path);
  if (run.HasCheckpoint()) return run.latest_checkpoint();
  if (fs::exists(fs::path(path) / "weights.safetensors", error)) return path;
  if (run.HoldsRun()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the run in ", path, " has no checkpoint yet"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", path, "\" is neither a run's folder nor a checkpoint"));
}

// As many as the run's own evaluations play.
int DefaultEpisodes(const std::string& checkpoint) {
  const auto config = LoadRunConfig(checkpoint + "/config.textproto", {});
  return config.ok() ? config->evaluation().episodes() : 10;
}

std::string WholeFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Runs the learner as a player. Returns the exit code to end with.
int Play(const std::string& checkpoint, int episodes,
         const std::string& scratch) {
  const auto program = FindProgram("flotilla-learner");
  if (!program.ok()) return Report("evaluate", program.status());
  const std::string log = scratch + "/log";
  const auto signals = ShutdownSignals::Install();
  const auto learner =
      Subprocess::Start({.argv = {*program, "--evaluate=" + checkpoint,
                                  absl::StrCat("--episodes=", episodes),
                                  "--output=" + scratch + "/result.json"},
                         .log_path = log});
  if (!learner.ok()) return Report("evaluate", learner.status());
  for (;;) {
    if (signals.ok() && (*signals)->first_signal() != 0) {
      return 128 + (*signals)->first_signal();
    }
    const auto exit = (*learner)->Wait(absl::Milliseconds(50));
    if (!exit) continue;
    if (exit->code == 0) return kExitDone;
    std::fprintf(stderr, "%s", WholeFile(log).c_str());
    Report("evaluate", absl::InternalError(absl::StrCat(
                           "the player ended with ", exit->ToString())));
    return exit->code == kExitUsage ? kExitUsage : kExitFailed;
  }
}

int Show(const std::string& result_path, bool json) {
  const auto result = ReadJson(result_path);
  if (!result.ok()) return Report("evaluate", result.status());
  if (json) {
    std::cout << WholeFile(result_path) << std::endl;
    return kExitDone;
  }
  const auto episodes = result->fields().find("episodes");
  int64_t count = 0;
  double low = 0, high = 0;
  if (episodes != result->fields().end()) {
    for (const auto& episode : episodes->second.list_value().values()) {
      const double value = JsonNumber(episode.struct_value(), "return");
      low = count == 0 ? value : std::min(low, value);
      high = count == 0 ? value : std::max(high, value);
      ++count;
    }
  }
  std::printf("%s  mean return %.2f over %s episodes (%.1f to %.1f)\n",
              JsonText(*result, "env_id").c_str(),
              JsonNumber(*result, "mean_return"), WithCommas(count).c_str(),
              low, high);
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
  const ParsedLine parsed = ParseLine("evaluate", arguments, 1, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  if (parsed.positional.empty()) {
    return ReportUsage("evaluate", absl::InvalidArgumentError(
                                       "name a run's folder or a checkpoint"));
  }
  const auto checkpoint = FindCheckpoint(parsed.positional[0]);
  if (!checkpoint.ok()) return Report("evaluate", checkpoint.status());

  std::string scratch = (fs::temp_directory_path() / "flotilla-XXXXXX");
  if (mkdtemp(scratch.data()) == nullptr) {
    return Report("evaluate", absl::UnavailableError(absl::StrCat(
                                  "cannot make a folder ", scratch)));
  }
  int code = Play(*checkpoint, episodes.value_or(DefaultEpisodes(*checkpoint)),
                  scratch);
  if (code == kExitDone) code = Show(scratch + "/result.json", json);
  std::error_code ignored;
  fs::remove_all(scratch, ignored);
  return code;
}

}  // namespace flotilla
