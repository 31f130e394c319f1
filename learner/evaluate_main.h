#ifndef FLOTILLA_LEARNER_EVALUATE_MAIN_H_
#define FLOTILLA_LEARNER_EVALUATE_MAIN_H_

#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "learner/collective/rank_device.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// Plays `episodes` episodes with the checkpoint in folder `checkpoint`, whole
// games and unclipped, on the device of learner 0, and writes JSON to `output`:
//
//   {"env_id": ..., "checkpoint": ..., "mean_return": ..., "episodes":
//    [{"return": ..., "length": ...}, ...]}
//
// and, unless that is empty, the games to the file `games`, to be seen again
// (services/env/recorded_games.h).
//
// Or, with `decisions` above 0, makes so many decisions instead, and writes those
// with what they were made of as safetensors (learner/eval/decisions.h).
//
// `credentials` are for an env server that runs already (env.server).
// Errors: those of the checkpoint, the env worker and the file.
absl::Status EvaluateCheckpoint(const std::string& checkpoint, int episodes,
                                int decisions, const std::string& output,
                                const std::string& games,
                                const RpcCredentials& credentials,
                                const DeviceChooser& choose_device,
                                std::stop_token stop);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_EVALUATE_MAIN_H_
