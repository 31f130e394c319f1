#ifndef FLOTILLA_SERVICES_ENV_AGENTS_H_
#define FLOTILLA_SERVICES_ENV_AGENTS_H_

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/env.pb.h"

namespace flotilla {

// Slots of one environment, of a specification that was checked; at least 1.
int SlotsOf(const v1::EnvSpec& spec);

// Slots of each environment that earlier selves play; 0 without selfplay.
int OpponentSlots(const v1::RunConfig& config);

// `config` as whoever learns in this environment has it: env.num_envs counts
// the slots that are learned from, without those of opponents.
// Errors: kInvalidArgument, naming the field, if the environment has too few
// agents for selfplay, env.num_envs is not a multiple of them, or sizes that have
// to divide what is left do not.
absl::StatusOr<v1::RunConfig> LearnedConfig(const v1::RunConfig& config,
                                            const v1::EnvSpec& spec);

// Whether both have the same observation and action leaves, so that a policy of
// the one can play the other.
bool SameLeaves(const v1::EnvSpec& one, const v1::EnvSpec& other);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_AGENTS_H_
