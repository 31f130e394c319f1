#ifndef FLOTILLA_LAUNCHER_CONFIG_FINDER_H_
#define FLOTILLA_LAUNCHER_CONFIG_FINDER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace flotilla {

struct ShippedConfig {
  std::string name;  // "cartpole_ppo"
  std::string path;
  std::string about;  // the first sentence of its leading comment
};

// The configurations that come with Flotilla, by name, from the first of these
// folders that exists: FLOTILLA_CONFIG_DIR, share/flotilla/configs beside bin/,
// deploy/configs of the checkout around the build.
// Errors: kNotFound, naming the folders.
absl::StatusOr<std::vector<ShippedConfig>> ShippedConfigs();

// The file that `config`, a path or a shipped name, means.
// Errors: kNotFound, with names that are near, or, of an environment's id, with
// how it is trained in.
absl::StatusOr<std::string> FindConfig(const std::string& config);

// What a run of it is called: "cartpole_ppo" for any path to that file.
std::string ConfigName(const std::string& path);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_CONFIG_FINDER_H_
