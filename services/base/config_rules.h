#ifndef FLOTILLA_SERVICES_BASE_CONFIG_RULES_H_
#define FLOTILLA_SERVICES_BASE_CONFIG_RULES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "flotilla/v1/config.pb.h"
#include "services/base/config_problem.h"

// What a RunConfig has to satisfy beyond its types. Free of files and flags:
// config.h puts these together with both.

namespace flotilla {

// Everything wrong with `config`: first what is out of its range, in the order
// of the fields, then what several fields make wrong together. Empty if it can
// run.
std::vector<ConfigProblem> FindProblems(const v1::RunConfig& config);

// The field of EnvOptions that our environment `env.id` reads, beside
// max_episode_steps and kwargs: "atari", "sleep", "maze", "gym_kwargs", or "" for
// none, as for whatever another's server (env.server) makes.
std::string EnvOptionsPart(const v1::EnvConfig& env);

// Whether all who play are of other programs, which dial in, and nobody is evaluated:
// what they play, they alone know.
bool IsPlayedElsewhere(const v1::RunConfig& config);

// What fits next to `value`, of multiples of `unit`: "use 8 or 12".
std::string NearbyMultiples(int64_t value, int64_t unit);

// Whether `env_id` is gym:ID, gym:package:ID or pettingzoo:MODULE, which Python
// serves.
bool IsGym(const std::string& env_id);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_CONFIG_RULES_H_
