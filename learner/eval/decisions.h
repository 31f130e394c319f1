#ifndef FLOTILLA_LEARNER_EVAL_DECISIONS_H_
#define FLOTILLA_LEARNER_EVAL_DECISIONS_H_

#include <cstdint>
#include <map>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "learner/actor/env_worker.h"
#include "learner/eval/evaluator.h"
#include "learner/nn/policy.h"
#include "learner/rollout/normalizer.h"
#include "learner/torch.h"

namespace flotilla {

// Plays with `policy`, greedily, until it has made `count` decisions, each of one
// row alone, and returns them with what it was shown: what another program that
// plays the same weights is compared with. Of D decisions, in the order of time:
//
//   spec              [bytes] uint8  the environment's EnvSpec, serialized
//   row               [D] int64      of which row: each is a sequence of its own
//   begins            [D] uint8      1: the first of an episode
//   observation.PATH  [D, ...]       each leaf as the environment sent it
//   discrete          [D, K] int64   } what was decided, where there are such,
//   continuous        [D, A] float32 } before it is clipped to bounds
//   value             [D] float32    0 of those that have none
//   state             [D, S] float32 of recurrent policies: afterwards
//
// Every slot of an environment with several agents is played. Observations are
// scaled by `normalizer` as it is. Blocks until all is there.
// Errors: kCancelled when `stop` is requested; those of EnvPool.
absl::StatusOr<std::map<std::string, torch::Tensor>> RecordDecisions(
    EnvWorkerOptions options, const TrainedEnv& trained, Policy* policy,
    const Normalizer& normalizer, int64_t count, std::stop_token stop);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_EVAL_DECISIONS_H_
