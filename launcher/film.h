#ifndef FLOTILLA_LAUNCHER_FILM_H_
#define FLOTILLA_LAUNCHER_FILM_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "launcher/replay.h"
#include "services/base/json.h"
#include "services/rpc/credentials.h"

namespace flotilla {

struct FilmOptions {
  std::optional<std::string> video;  // nullopt: nothing is drawn
  int frames_per_second = 30;
  bool json = false;
  bool quiet = false;          // print nothing but what goes wrong
  RpcCredentials credentials;  // for an env server that runs already
};

// Plays a game again, films it if asked to, and prints what came of it, for flotilla
// `command`. Blocks. Returns the exit code: 1 if it came out differently.
int FilmGame(const std::string& command, const GameAlbum::Place& place,
             const FilmOptions& options);

// What a game was: {"number": 3, "kept_as": ["best"], "return": 500, ...}, and the
// environment's own metrics, but for one that is called as any of these.
Json GameToJson(const GameAlbum::Place& place);
// "return 500.00 over 500 steps", or how it failed.
std::string DescribeGame(const v1::RecordedGame& game);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_FILM_H_
