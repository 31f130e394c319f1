#include "envserver/environment_arguments.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "services/base/nearest_name.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

const char* TypeName(const Json& value) {
  if (value.is_number_integer()) return "an integer";
  if (value.is_number()) return "a number";
  if (value.is_boolean()) return "true or false";
  if (value.is_string()) return "a text";
  if (value.is_array()) return "a list";
  return value.is_object() ? "an object" : "anything";
}

bool HasTypeOf(const Json& value, const Json& wanted) {
  if (wanted.is_null()) return true;
  if (wanted.is_number_integer()) return value.is_number_integer();
  if (wanted.is_number()) return value.is_number();
  return value.type() == wanted.type();
}

// JSON, or else the text itself, as also where a text is wanted.
absl::StatusOr<Json> ReadValue(const EnvironmentOption& option,
                               const std::string& text) {
  const auto parsed = ParseJson(text);
  Json value = parsed.ok() ? *parsed : Json(text);
  if (option.default_value.is_string() && !value.is_string()) value = text;
  if (HasTypeOf(value, option.default_value)) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("env.options.kwargs.", option.name, " is ", text, ", want ",
                   TypeName(option.default_value),
                   ", as its default is: ", FormatJson(option.default_value)));
}

absl::Status Unknown(const std::string& env_id, const std::string& name,
                     const std::vector<EnvironmentOption>& declared) {
  std::vector<std::string> known;
  for (const EnvironmentOption& option : declared) known.push_back(option.name);
  const std::string nearest = DidYouMean(name, known);
  return absl::InvalidArgumentError(absl::StrCat(
      "env.options.kwargs.", name, " is set, but ", env_id,
      known.empty() ? " takes no such options; remove it"
                    : absl::StrCat(" has no such option", nearest, " (it has ",
                                   absl::StrJoin(known, ", "), ")")));
}

}  // namespace

absl::StatusOr<EnvironmentArguments> EnvironmentArguments::Read(
    const std::string& env_id, const std::vector<EnvironmentOption>& declared,
    const v1::EnvOptions& options, uint64_t worker_id) {
  EnvironmentArguments arguments;
  arguments.env_id_ = env_id;
  arguments.worker_id_ = worker_id;
  arguments.options_ = options;
  for (const EnvironmentOption& option : declared) {
    arguments.values_[option.name] = option.default_value;
  }
  // A map of a message has no order; the same mistake gets the same words.
  const std::map<std::string, std::string> given(options.kwargs().begin(),
                                                 options.kwargs().end());
  for (const auto& [name, text] : given) {
    const auto option =
        std::find_if(declared.begin(), declared.end(),
                     [&name = name](const EnvironmentOption& known) {
                       return known.name == name;
                     });
    if (option == declared.end()) return Unknown(env_id, name, declared);
    ASSIGN_OR_RETURN(arguments.values_[name], ReadValue(*option, text));
  }
  return arguments;
}

const Json& EnvironmentArguments::Value(const std::string& name) const {
  const auto found = values_.find(name);
  CHECK(found != values_.end())
      << env_id_ << " declares no option \"" << name << "\"";
  return found->second;
}

int64_t EnvironmentArguments::Int(const std::string& name) const {
  const Json& value = Value(name);
  CHECK(value.is_number_integer()) << "option \"" << name << "\" of " << env_id_
                                   << " is " << TypeName(value);
  return value.get<int64_t>();
}

double EnvironmentArguments::Number(const std::string& name) const {
  const Json& value = Value(name);
  CHECK(value.is_number()) << "option \"" << name << "\" of " << env_id_
                           << " is " << TypeName(value);
  return value.get<double>();
}

bool EnvironmentArguments::Switch(const std::string& name) const {
  const Json& value = Value(name);
  CHECK(value.is_boolean()) << "option \"" << name << "\" of " << env_id_
                            << " is " << TypeName(value);
  return value.get<bool>();
}

std::string EnvironmentArguments::Text(const std::string& name) const {
  const Json& value = Value(name);
  CHECK(value.is_string()) << "option \"" << name << "\" of " << env_id_
                           << " is " << TypeName(value);
  return value.get<std::string>();
}

}  // namespace flotilla
