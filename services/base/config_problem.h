#ifndef FLOTILLA_SERVICES_BASE_CONFIG_PROBLEM_H_
#define FLOTILLA_SERVICES_BASE_CONFIG_PROBLEM_H_

#include <string>
#include <vector>

namespace flotilla {

// One thing wrong with a configuration.
struct ConfigProblem {
  std::string path;     // of the field to change: "env.num_envs"
  std::string message;  // its value, what is wrong, and the remedy
};

// Adds a problem to `problems` unless all is `good`.
inline void Require(bool good, const std::string& path,
                    const std::string& message,
                    std::vector<ConfigProblem>* problems) {
  if (!good) problems->push_back({path, message});
}

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_CONFIG_PROBLEM_H_
