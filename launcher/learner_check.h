#ifndef FLOTILLA_LAUNCHER_LEARNER_CHECK_H_
#define FLOTILLA_LAUNCHER_LEARNER_CHECK_H_

#include <stop_token>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/env.pb.h"

namespace flotilla {

// Whether `config` brings a network or an algorithm of the user's, of which only a
// learner can say whether it fits.
bool BringsCode(const v1::RunConfig& config);

// Asks a flotilla-learner, started for this question alone, whether the network
// and the algorithm of `config` fit an environment of `spec`. Blocks for a second
// or two.
// Errors: kInvalidArgument with the learner's last words; kUnavailable if there is
// no answer in `timeout`; kCancelled when `stop` is requested.
absl::Status AskLearner(const v1::RunConfig& config, const v1::EnvSpec& spec,
                        absl::Duration timeout, std::stop_token stop = {});

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_LEARNER_CHECK_H_
