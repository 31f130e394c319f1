#include "launcher/replay.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "launcher/commands/command.h"
#include "launcher/film.h"
#include "launcher/numbers.h"
#include "launcher/video.h"
#include "services/base/json.h"
#include "services/rpc/credential_flags.h"

namespace flotilla {
namespace {

void List(const GameAlbum& album, bool json) {
  Json all = Json::array();
  for (const GameAlbum::Place& place : album.All()) {
    if (json) {
      all.push_back(GameToJson(place));
      continue;
    }
    std::printf("%4d  %-22s  at step %11s  %s\n", place.number,
                place.Title().c_str(),
                WithCommas(place.game->global_step()).c_str(),
                DescribeGame(*place.game).c_str());
  }
  if (json) std::printf("%s\n", FormatJson(all, 1).c_str());
}

}  // namespace

int RunReplay(const Arguments& arguments) {
  std::string which = "best";
  FilmOptions options;
  bool list = false;
  CommandLine line(
      "flotilla replay RUN [flags]",
      "Plays a game of a run again, from its seeds and actions, and says "
      "whether it came out the\nsame: of training the best, worst, median, "
      "newest, crashed and unusable ones, and all of\nevaluations.");
  line.Text("--episode", "WHICH",
            "best (default), worst, median, newest, crashed, unusable; "
            "evaluation, the best of the newest one, or evaluation:ROUND; a "
            "number of --list",
            &which);
  line.Text("--video", "FILE",
            "film it: .mp4 (needs av and pillow in python3, or "
            "FLOTILLA_PYTHON), .webp or .gif (pillow)",
            &options.video);
  line.Int("--fps", "N", 1, "frames a second (default 30)",
           &options.frames_per_second);
  line.Switch("--list", "list what there is", &list);
  line.Switch("--json", "print it as JSON", &options.json);
  // For an env server that runs already (env.server).
  AddCredentialFlags(&options.credentials, &line);
  const ParsedLine parsed = ParseLine("replay", arguments, 1, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  if (parsed.positional.empty()) {
    return ReportUsage("replay",
                       absl::InvalidArgumentError("name a run's folder"));
  }
  if (options.video) {
    const absl::Status path = CheckVideoPath(*options.video);
    if (!path.ok()) return Report("replay", path);
  }
  const auto album = GameAlbum::Read(parsed.positional[0]);
  if (!album.ok()) return Report("replay", album.status());
  if (list) {
    List(*album, options.json);
    return kExitDone;
  }
  const auto place = album->Find(which);
  if (!place.ok()) return Report("replay", place.status());
  return FilmGame("replay", *place, options);
}

}  // namespace flotilla
