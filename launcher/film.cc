#include "launcher/film.h"

#include <cstdio>
#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/commands/command.h"
#include "launcher/numbers.h"
#include "launcher/video.h"
#include "services/base/printable.h"
#include "services/base/shutdown.h"
#include "services/env/recorded_games.h"

namespace flotilla {
namespace {

std::string EndOf(const v1::RecordedGame& game) {
  switch (game.end()) {
    case v1::RecordedGame::CRASHED:
      return "crashed";
    case v1::RecordedGame::UNUSABLE:
      return "unusable";
    default:
      return "over";
  }
}

}  // namespace

Json GameToJson(const GameAlbum::Place& place) {
  const v1::RecordedGame& game = *place.game;
  Json json = {{"number", place.number},
               {"env_id", place.games->env_id()},
               {"kept_as", Json::array()},
               {"evaluation", place.games->round()},
               {"end", EndOf(game)},
               {"return", game.score()},
               {"returns", Json::array()},
               {"steps", StepsOf(game)},
               {"episodes", game.episode_size()},
               {"global_step", game.global_step()}};
  for (const std::string& as : game.kept_as()) json["kept_as"].push_back(as);
  Json own = Json::object();  // the environment's, under names that may be ours
  for (const v1::GameSlot& slot : game.slot()) {
    json["returns"].push_back(slot.raw_return());
    for (const auto& [name, value] : slot.metric()) own[name] = value;
  }
  if (!game.error().empty()) json["error"] = game.error();
  for (const auto& [name, value] : own.items()) {
    if (!json.contains(name)) json[name] = value;
  }
  return json;
}

// "return 500.00 over 500 steps", or how it failed.
std::string DescribeGame(const v1::RecordedGame& game) {
  if (game.end() != v1::RecordedGame::OVER) {
    return absl::StrCat(EndOf(game), " after ", WithCommas(StepsOf(game)),
                        " steps: ", PrintableLine(game.error(), 100));
  }
  return absl::StrFormat("return %.2f over %s steps", game.score(),
                         WithCommas(StepsOf(game)));
}

int FilmGame(const std::string& command, const GameAlbum::Place& place,
             const FilmOptions& options) {
  const auto signals = ShutdownSignals::Install();
  if (!signals.ok()) return Report(command, signals.status());
  const auto failed = [&](const absl::Status& why) {
    return absl::IsCancelled(why) ? 128 + (*signals)->first_signal()
                                  : Report(command, why);
  };
  std::unique_ptr<VideoWriter> video;
  std::function<absl::Status(const v1::Frame&)> on_frame;
  if (options.video) {
    auto opened = VideoWriter::Open(*options.video, options.frames_per_second,
                                    (*signals)->Stop());
    if (!opened.ok()) return failed(opened.status());
    video = *std::move(opened);
    on_frame = [&](const v1::Frame& frame) { return video->Write(frame); };
  }
  const auto played =
      PlayGameAgain(place, options.credentials, on_frame, (*signals)->Stop());
  if (!played.ok()) return failed(played.status());
  if (video != nullptr) {
    const absl::Status closed = video->Close();
    if (!closed.ok()) return failed(closed);
  }
  if (options.quiet) {
    // Somebody reads what was printed before.
  } else if (options.json) {
    Json json = GameToJson(place);
    json["reproduced"] = played->difference.empty();
    if (!played->difference.empty()) json["difference"] = played->difference;
    if (video != nullptr) {
      json["video"] = *options.video;
      json["frames"] = video->frames();
    }
    std::printf("%s\n", FormatJson(json, 1).c_str());
  } else {
    std::printf(
        "%s  %s: %s%s\n", place.games->env_id().c_str(), place.Title().c_str(),
        DescribeGame(*place.game).c_str(),
        played->difference.empty() ? "; played again, it is the same" : "");
    if (video != nullptr) {
      std::printf("%s: %s frames\n", options.video->c_str(),
                  WithCommas(video->frames()).c_str());
    }
  }
  if (played->difference.empty()) return kExitDone;
  std::fflush(stdout);
  return Report(command, absl::InternalError(absl::StrCat(
                             place.games->env_id(),
                             " does not reproduce its games from seed and "
                             "actions: ",
                             played->difference)));
}

}  // namespace flotilla
