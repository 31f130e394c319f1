#include "launcher/variables.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace flotilla {

bool Variables::Has(const std::string& name) const {
  return environment_.count(name) > 0;
}

std::string Variables::Text(const std::string& name) const {
  const auto found = environment_.find(name);
  return found == environment_.end() ? "" : found->second;
}

absl::StatusOr<int> Variables::Int(const std::string& name, int low,
                                   int high) const {
  int value = 0;
  if (absl::SimpleAtoi(Text(name), &value) && value >= low && value <= high) {
    return value;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is \"", Text(name), "\"; expected an integer from ",
                   low, " to ", high));
}

absl::Status Variables::Require(const std::vector<std::string>& names,
                                const std::string& set_name) const {
  std::vector<std::string> present, missing;
  for (const std::string& name : names) {
    (Has(name) ? present : missing).push_back(name);
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the environment is only part of ", set_name, ": it has ",
      absl::StrJoin(present, ", "), " but not ", absl::StrJoin(missing, ", "),
      "; set what is missing, or give --standalone to ignore it"));
}

std::string Variables::Either(const std::string& first,
                              const std::string& second) const {
  return !Has(first) && Has(second) ? second : first;
}

}  // namespace flotilla
