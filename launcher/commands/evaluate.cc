#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "launcher/commands/command.h"
#include "launcher/numbers.h"
#include "launcher/player.h"
#include "services/base/config.h"
#include "services/base/json.h"
#include "services/base/run_folder.h"
#include "services/base/scratch_folder.h"
#include "services/base/text_file.h"
#include "services/rpc/credential_flags.h"

namespace flotilla {
namespace {

// As many as the run's own evaluations play.
int DefaultEpisodes(const std::string& checkpoint) {
  const auto config = LoadRunConfig(CheckpointFolder(checkpoint).config(), {});
  return config.ok() ? config->evaluation().episodes() : 10;
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
  const std::string result = scratch.path() + "/result.json";
  int code =
      RunPlayer("evaluate", *checkpoint,
                {absl::StrCat("--episodes=",
                              episodes.value_or(DefaultEpisodes(*checkpoint))),
                 "--output=" + result},
                credentials, scratch.path());
  if (code == kExitDone) code = Show(result, json);
  return code;
}

}  // namespace flotilla
