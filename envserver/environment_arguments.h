#ifndef FLOTILLA_ENVSERVER_ENVIRONMENT_ARGUMENTS_H_
#define FLOTILLA_ENVSERVER_ENVIRONMENT_ARGUMENTS_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "services/base/json.h"

namespace flotilla {

// An option that an environment takes, as env.options.kwargs.NAME. The default's
// type is the option's: 8 is an integer, 0.5 a number, true a switch, "8x8" a
// text, null anything.
struct EnvironmentOption {
  std::string name;
  Json default_value;
  std::string help;  // a line for people
};

// What one environment is made from: each option that it declares, as given or
// by default.
class EnvironmentArguments {
 public:
  // Of `declared` options of `env_id`, what `options` say.
  // Errors: kInvalidArgument naming an option that is not declared, and the
  // nearest that is, or one of another type than its default.
  static absl::StatusOr<EnvironmentArguments> Read(
      const std::string& env_id, const std::vector<EnvironmentOption>& declared,
      const v1::EnvOptions& options, uint64_t worker_id);

  const std::string& env_id() const { return env_id_; }
  uint64_t worker_id() const { return worker_id_; }
  // All of them, also those that only environments of ours read.
  const v1::EnvOptions& options() const { return options_; }

  // The option `name`, which has to be declared, with a default of that type.
  int64_t Int(const std::string& name) const;
  double Number(const std::string& name) const;
  bool Switch(const std::string& name) const;
  std::string Text(const std::string& name) const;
  const Json& Value(const std::string& name) const;

 private:
  EnvironmentArguments() = default;

  std::string env_id_;
  uint64_t worker_id_ = 0;
  v1::EnvOptions options_;
  std::map<std::string, Json> values_;
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVIRONMENT_ARGUMENTS_H_
