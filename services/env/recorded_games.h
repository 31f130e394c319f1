#ifndef FLOTILLA_SERVICES_ENV_RECORDED_GAMES_H_
#define FLOTILLA_SERVICES_ENV_RECORDED_GAMES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/env.pb.h"
#include "flotilla/v1/episodes.pb.h"
#include "services/base/run_folder.h"

namespace flotilla {

// Files of games that can be seen again; proto/flotilla/v1/episodes.proto says
// what is in them.

// Of one agent's action in `leaf`: elements, and bytes of each as it travels and as
// it is recorded. `leaf` has been checked, as MakeGroupLayout does.
struct RecordedLeaf {
  size_t elements = 1;
  size_t wire_bytes = 0;
  size_t bytes = 0;  // 1, or those of the wire
};
RecordedLeaf RecordedAs(const v1::Leaf& leaf);

// What is said of all games of a file: what was played, and what actions are.
v1::RecordedGames GamesOf(const v1::EnvConfig& env, const v1::EnvSpec& spec);

// Writes the file whole or not at all. Errors: those of WriteFileAtomically.
absl::Status WriteGames(const std::string& path,
                        const v1::RecordedGames& games);

// Reads a file that may come from anywhere: afterwards every action is there and
// of its size.
// Errors: kNotFound if there is none; kInvalidArgument, naming it and what is wrong:
// no such file, another version, cut, changed.
absl::StatusOr<v1::RecordedGames> ReadGames(const std::string& path);

// What plays `game`, one of `games` (as ReadGames leaves them), again.
v1::ReplayRequest ReplayOf(const v1::RecordedGames& games,
                           const v1::RecordedGame& game, bool frames);

// Rounds of evaluations whose games `run` has, ascending.
std::vector<int64_t> EvaluationsIn(const RunFolder& run);

// Of all its episodes.
int64_t StepsOf(const v1::RecordedGame& game);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_RECORDED_GAMES_H_
