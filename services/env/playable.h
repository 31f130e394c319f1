#ifndef FLOTILLA_SERVICES_ENV_PLAYABLE_H_
#define FLOTILLA_SERVICES_ENV_PLAYABLE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/env.pb.h"

namespace flotilla {

// Whether a learner with `config` can play an environment at all, before
// anything is started: what spaces.h, encoder_plan.h, agents.h and the algorithm
// would refuse.
// Errors: kInvalidArgument for a specification that is none, or spaces that no
// network here takes, naming the leaf, its shape and what would fit, or the field
// of `config` that does not fit the environment's agents.
absl::Status CheckPlayable(const v1::RunConfig& config,
                           const v1::EnvSpec& spec);

// What is allowed and hardly meant, each with its remedy: an image that will be
// seen as a vector though nobody asked for that of this leaf; numbers that
// model.normalize_observations leaves as they are, or scales beneath earlier selves;
// a precision, or widths, that the network does not take; where learners are `on_gpu`,
// a network that a CPU is faster with.
std::vector<std::string> PlayableWarnings(const v1::RunConfig& config,
                                          const v1::EnvSpec& spec, bool on_gpu);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_PLAYABLE_H_
