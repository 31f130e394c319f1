#include "envserver/command_line.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/nearest_name.h"
#include "services/base/version.h"

namespace flotilla {
namespace {

using Flags = std::map<std::string, absl::CommandLineFlag*>;

// Flags of this program, not of the libraries it links.
Flags OurFlags() {
  Flags flags;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (absl::StrContains(flag->Filename(), "envserver/")) {
      flags[std::string(name)] = flag;
    }
  }
  return flags;
}

void PrintHelp(const std::string& usage) {
  std::printf("%s\nFlags:\n", usage.c_str());
  for (const auto& [name, flag] : OurFlags()) {
    const std::string value = flag->DefaultValue();
    std::printf("  --%s=%s\n      %s\n", name.c_str(), value.c_str(),
                flag->Help().c_str());
  }
}

absl::Status UnknownFlag(const std::string& name, const Flags& flags) {
  std::vector<std::string> names;
  for (const auto& [known, flag] : flags) names.push_back(known);
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no flag --", name, DidYouMean(name, names), "; see --help"));
}

// Sets the flag of arguments[*i], and moves *i to the value's argument if that
// is the next one.
absl::Status SetFlag(const Flags& flags,
                     const std::vector<std::string>& arguments, size_t* i) {
  const std::string& argument = arguments[*i];
  if (!absl::StartsWith(argument, "--")) {
    return absl::InvalidArgumentError(
        absl::StrCat("unexpected argument \"", argument, "\"; see --help"));
  }
  const size_t equals = argument.find('=');
  std::string name(argument.begin() + 2,
                   argument.begin() + std::min(equals, argument.size()));
  std::replace(name.begin(), name.end(), '-', '_');
  std::string value = "true";
  auto flag = flags.find(name);
  if (flag == flags.end() && absl::StartsWith(name, "no")) {
    flag = flags.find(name.substr(2));
    value = "false";
    if (flag != flags.end() && !flag->second->IsOfType<bool>()) {
      flag = flags.end();
    }
  }
  if (flag == flags.end()) return UnknownFlag(name, flags);
  if (equals != std::string::npos) {
    value = argument.substr(equals + 1);
  } else if (!flag->second->IsOfType<bool>()) {
    if (*i + 1 == arguments.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, " wants a value"));
    }
    value = arguments[++*i];
  }
  std::string error;
  if (!flag->second->ParseFrom(value, &error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, "=", value, ": ", error));
  }
  return absl::OkStatus();
}

}  // namespace

Parsed ParseCommandLine(const std::string& program, const std::string& usage,
                        const std::vector<std::string>& arguments) {
  const Flags flags = OurFlags();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--help" || arguments[i] == "-h") {
      PrintHelp(usage);
      return Parsed::kExit;
    }
    if (arguments[i] == "--version") {
      std::printf("%s %s\n", program.c_str(), Version().c_str());
      return Parsed::kExit;
    }
    const absl::Status status = SetFlag(flags, arguments, &i);
    if (!status.ok()) {
      std::fprintf(stderr, "%s: %s\n", program.c_str(),
                   std::string(status.message()).c_str());
      return Parsed::kBadUsage;
    }
  }
  return Parsed::kRun;
}

}  // namespace flotilla
