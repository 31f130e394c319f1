#ifndef FLOTILLA_SERVICES_BASE_NEAREST_NAME_H_
#define FLOTILLA_SERVICES_BASE_NEAREST_NAME_H_

#include <string>
#include <vector>

namespace flotilla {

// The name in `known` that someone who typed `name` probably meant: few edits
// away, or equal but for its case, or the only one that begins with or contains
// it, or made of its words and others ("total_steps": total_env_steps, "lr":
// learning_rate). "" if none is near.
std::string NearestName(const std::string& name,
                        const std::vector<std::string>& known);

// `; did you mean "num_envs"?`, or "" if no name is near.
std::string DidYouMean(const std::string& name,
                       const std::vector<std::string>& known);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_NEAREST_NAME_H_
