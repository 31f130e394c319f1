#ifndef FLOTILLA_ENVSERVER_ENV_IDS_H_
#define FLOTILLA_ENVSERVER_ENV_IDS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace flotilla {

// Whether `env_id` is written as those of the emulator: "ALE/...".
bool IsAtari(const std::string& env_id);

// Errors: kInvalidArgument if the rest of a gym: or ALE/ id cannot be one.
absl::Status CheckEnvId(const std::string& env_id);

// kNotFound: nothing is called `env_id`, and which of `known` was meant.
absl::Status NoSuchEnvironment(const std::string& env_id,
                               const std::vector<std::string>& known);

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENV_IDS_H_
