#ifndef FLOTILLA_SERVICES_BASE_CONFIG_OVERRIDE_H_
#define FLOTILLA_SERVICES_BASE_CONFIG_OVERRIDE_H_

#include <string>
#include <vector>

// What is said of a path that leads to no field of the configuration.

namespace flotilla {

// For a path that leads to no field: `; did you mean "ppo.epochs" or "impala.epochs"?`,
// of what ends like it, is called so by others, or is near; "" if nothing is.
std::string FieldHint(const std::string& path);

// The same, only where the last name of `path` is what CleanRL or Stable-Baselines3 call
// a field, of the algorithm in whose section it is, else of `algorithm` ("": of
// all); "" if they call none so.
std::string OtherNameHint(const std::string& path,
                          const std::string& algorithm);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_CONFIG_OVERRIDE_H_
