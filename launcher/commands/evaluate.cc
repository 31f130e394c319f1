#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "launcher/commands/command.h"
#include "launcher/film.h"
#include "launcher/follow.h"
#include "launcher/numbers.h"
#include "launcher/player.h"
#include "launcher/video.h"
#include "services/base/config.h"
#include "services/base/json.h"
#include "services/base/run_folder.h"
#include "services/base/scratch_folder.h"
#include "services/base/shutdown.h"
#include "services/base/status_macros.h"
#include "services/base/text_file.h"
#include "services/env/recorded_games.h"
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

// Of a run, whose newest checkpoint is played: that another one evaluated best, if so.
void TellOfBest(const std::string& run, const std::string& played) {
  namespace fs = std::filesystem;
  const std::string best = RunFolder(run).checkpoints() + "/best";
  std::error_code error;
  if (CheckpointFolder(run).Exists() || !fs::exists(best, error)) return;
  const fs::path newest = fs::canonical(played, error);
  const fs::path other = fs::canonical(best, error);
  if (error || newest == other) return;
  std::fprintf(stderr,
               "flotilla evaluate: that was the newest checkpoint, %s; %s "
               "evaluated best while it trained: flotilla evaluate %s\n",
               newest.filename().c_str(), other.filename().c_str(),
               best.c_str());
}

// A run's folder, and no checkpoint's, which has a configuration too.
absl::Status CheckRun(const std::string& path) {
  if (CheckpointFolder(path).Exists()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", path, "\" is a checkpoint; --follow wants its run's folder"));
  }
  if (RunFolder(path).HoldsRun()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", path, "\" is no run's folder, which --follow wants"));
}

void ShowLine(const Json& line) {
  const auto number = [&](const char* name) {  // null if it is not finite
    return line.contains(name) && line.at(name).is_number()
               ? line.at(name).get<double>()
               : std::nan("");
  };
  std::printf("step %s  mean return %.2f over %s episodes (%.1f to %.1f)\n",
              WithCommas(line.at("global_step").get<int64_t>()).c_str(),
              number("eval/mean_return"),
              WithCommas(line.at("episodes").get<int64_t>()).c_str(),
              number("eval/min_return"), number("eval/max_return"));
}

int Follow(const std::string& path, std::optional<int> episodes, bool json,
           const RpcCredentials& credentials) {
  if (const absl::Status run = CheckRun(path); !run.ok()) {
    return Report("evaluate", run);
  }
  const RunFolder run(path);
  const ScratchFolder scratch;
  if (!scratch.status().ok()) return Report("evaluate", scratch.status());
  const auto signals = ShutdownSignals::Install();
  if (!signals.ok()) return Report("evaluate", signals.status());
  const auto log = FollowLog::Open(run);
  if (!log.ok()) return Report("evaluate", log.status());

  const std::stop_token stop = (*signals)->Stop();
  const auto play = [&](const std::string& held) -> absl::StatusOr<Json> {
    const std::string result = scratch.path() + "/result.json";
    const std::string said = scratch.path() + "/log";
    std::remove(result.c_str());
    std::remove(said.c_str());
    ASSIGN_OR_RETURN(
        const Subprocess::Exit exit,
        AwaitPlayer(held,
                    {absl::StrCat("--episodes=",
                                  episodes.value_or(DefaultEpisodes(held))),
                     "--output=" + result},
                    credentials, said, stop));
    if (exit.code != 0) {
      const bool for_good =
          exit.code == kExitUsage || exit.code == kExitHopeless;
      return absl::Status(for_good ? absl::StatusCode::kFailedPrecondition
                                   : absl::StatusCode::kInternal,
                          absl::StrCat("the player ended with ",
                                       exit.ToString(), ": ", LastLine(said)));
    }
    return ParseJson(WholeFile(result).value_or(""));
  };
  FollowOptions options;
  options.on_evaluated = [&](const Json& line) {
    if (json) {
      std::printf("%s\n", FormatJson(line).c_str());
    } else {
      ShowLine(line);
    }
    std::fflush(stdout);
  };
  options.on_skipped = [](const std::string& text) {
    std::fprintf(stderr, "flotilla evaluate: %s\n", text.c_str());
  };
  options.on_waiting = [&] {
    std::fprintf(
        stderr,
        "flotilla evaluate: waits for the next checkpoint in %s, until "
        "the run is over\n",
        run.path().c_str());
  };
  const auto failed = FollowRun(run, play, options, log->get(), stop);
  if (absl::IsCancelled(failed.status())) {
    return 128 + (*signals)->first_signal();
  }
  if (!failed.ok()) return Report("evaluate", failed.status());
  return *failed == 0 ? kExitDone : kExitFailed;
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
  line.Switch(
      "--json",
      "print every episode, as JSON; with --follow, every line of the file",
      &json);
  bool follow = false;
  line.Switch("--follow",
              "evaluate every checkpoint of a run as it appears, until the run "
              "is over, into RUN/evaluations.jsonl; goes on where it was",
              &follow);
  FilmOptions film;
  line.Text("--video", "FILE",
            "film the best of the episodes: .mp4 (needs av and pillow in "
            "python3, or FLOTILLA_PYTHON), .webp or .gif (pillow)",
            &film.video);
  // For an env server that runs already (env.server).
  AddCredentialFlags(&film.credentials, &line);
  const ParsedLine parsed = ParseLine("evaluate", arguments, 1, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  const RpcCredentials& credentials = film.credentials;
  if (parsed.positional.empty()) {
    return ReportUsage("evaluate", absl::InvalidArgumentError(
                                       "name a run's folder or a checkpoint"));
  }
  if (film.video) {
    const absl::Status path =
        follow ? absl::InvalidArgumentError(
                     "--video films one evaluation, and --follow plays many")
               : CheckVideoPath(*film.video);
    if (!path.ok()) return ReportUsage("evaluate", path);
  }
  if (follow) {
    return Follow(parsed.positional[0], episodes, json, credentials);
  }
  const auto checkpoint = FindCheckpoint(parsed.positional[0]);
  if (!checkpoint.ok()) return Report("evaluate", checkpoint.status());

  const ScratchFolder scratch;
  if (!scratch.status().ok()) return Report("evaluate", scratch.status());
  const std::string result = scratch.path() + "/result.json";
  const std::string games = scratch.path() + "/evaluation.games";
  std::vector<std::string> flags = {
      absl::StrCat("--episodes=",
                   episodes.value_or(DefaultEpisodes(*checkpoint))),
      "--output=" + result};
  if (film.video) flags.push_back("--games=" + games);
  int code =
      RunPlayer("evaluate", *checkpoint, flags, credentials, scratch.path());
  if (code == kExitDone) code = Show(result, json);
  if (code == kExitDone && !json) TellOfBest(parsed.positional[0], *checkpoint);
  if (code != kExitDone || !film.video) return code;
  auto played = ReadGames(games);
  if (!played.ok()) return Report("evaluate", played.status());
  const GameAlbum album = GameAlbum::Of(*std::move(played));
  const auto best = album.Find("evaluation");
  if (!best.ok()) return Report("evaluate", best.status());
  film.quiet = json;
  return FilmGame("evaluate", *best, film);
}

}  // namespace flotilla
