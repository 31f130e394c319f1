#ifndef FLOTILLA_LEARNER_EVALUATE_MAIN_H_
#define FLOTILLA_LEARNER_EVALUATE_MAIN_H_

#include <stop_token>
#include <string>

#include "absl/status/status.h"

namespace flotilla {

// Plays `episodes` episodes with the checkpoint in folder `checkpoint`, whole
// games and unclipped, and writes JSON to `output`:
//
//   {"env_id": ..., "checkpoint": ..., "mean_return": ..., "episodes":
//    [{"return": ..., "length": ...}, ...]}
//
// Errors: those of the checkpoint, the env worker and the file.
absl::Status EvaluateCheckpoint(const std::string& checkpoint, int episodes,
                                const std::string& output,
                                std::stop_token stop);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_EVALUATE_MAIN_H_
