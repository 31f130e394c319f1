#include "services/base/command_line.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/completion.h"
#include "services/base/manual.h"
#include "services/base/nearest_name.h"
#include "services/base/status_macros.h"
#include "services/base/version.h"

namespace flotilla {
namespace {

constexpr size_t kHelpColumn = 34;

std::string Normalized(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

absl::Status Wrong(const std::string& name, const std::string& value,
                   const std::string& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is \"", value, "\"; expected ", expected));
}

bool Never(const std::string&) { return false; }

}  // namespace

CommandLine::CommandLine(std::string usage, std::string about)
    : usage_(std::move(usage)), about_(std::move(about)) {}

void CommandLine::Switch(const std::string& name, const std::string& help,
                         bool* out) {
  const auto set = [name, out](const std::string& value) {
    if (absl::SimpleAtob(value, out)) return absl::OkStatus();
    return Wrong(name, value, "true or false");
  };
  flags_.push_back({name, "", help, set, "true", Never, {}});
}

void CommandLine::Text(const std::string& name, const std::string& value_name,
                       const std::string& help,
                       std::optional<std::string>* out) {
  const auto set = [name, out](const std::string& value) {
    if (value.empty()) return Wrong(name, value, "a value");
    *out = value;
    return absl::OkStatus();
  };
  flags_.push_back({name, value_name, help, set, "", nullptr, {}});
}

void CommandLine::Text(const std::string& name, const std::string& value_name,
                       const std::string& help, std::string* out) {
  const auto set = [name, out](const std::string& value) {
    if (value.empty()) return Wrong(name, value, "a value");
    *out = value;
    return absl::OkStatus();
  };
  flags_.push_back({name, value_name, help, set, "", nullptr, {}});
}

void CommandLine::Choice(const std::string& name,
                         const std::vector<std::string>& choices,
                         const std::string& help, std::string* out) {
  const auto set = [name, choices, out](const std::string& value) {
    const std::string wanted = absl::AsciiStrToLower(value);
    if (std::find(choices.begin(), choices.end(), wanted) == choices.end()) {
      return Wrong(name, value,
                   absl::StrCat("one of ", absl::StrJoin(choices, ", "),
                                DidYouMean(value, choices)));
    }
    *out = wanted;
    return absl::OkStatus();
  };
  flags_.push_back(
      {name, absl::StrJoin(choices, "|"), help, set, "", nullptr, {}});
}

void CommandLine::Int(const std::string& name, const std::string& value_name,
                      int low, const std::string& help,
                      std::optional<int>* out) {
  AddInt<int>(name, value_name, low, help, [out](int value) { *out = value; });
}

void CommandLine::Int(const std::string& name, const std::string& value_name,
                      int low, const std::string& help, int* out) {
  AddInt<int>(name, value_name, low, help, [out](int value) { *out = value; });
}

void CommandLine::Int(const std::string& name, const std::string& value_name,
                      int64_t low, const std::string& help, int64_t* out) {
  AddInt<int64_t>(name, value_name, low, help,
                  [out](int64_t value) { *out = value; });
}

template <typename T>
void CommandLine::AddInt(const std::string& name, const std::string& value_name,
                         T low, const std::string& help,
                         std::function<void(T)> take) {
  const auto set = [name, low, take](const std::string& value) {
    T parsed = 0;
    if (!absl::SimpleAtoi(value, &parsed) || parsed < low) {
      return Wrong(name, value, absl::StrCat("an integer of at least ", low));
    }
    take(parsed);
    return absl::OkStatus();
  };
  flags_.push_back({name, value_name, help, set, "", nullptr, {}});
}

void CommandLine::Number(const std::string& name, const std::string& value_name,
                         const std::string& help, double* out) {
  const auto set = [name, out](const std::string& value) {
    double parsed = 0;
    if (!absl::SimpleAtod(value, &parsed) || !std::isfinite(parsed)) {
      return Wrong(name, value, "a number");
    }
    *out = parsed;
    return absl::OkStatus();
  };
  flags_.push_back({name, value_name, help, set, "", nullptr, {}});
}

void CommandLine::List(const std::string& name, const std::string& value_name,
                       const std::string& help, std::vector<std::string>* out) {
  Each(name, value_name, help,
       [out](const std::string& value) { out->push_back(value); });
}

void CommandLine::Each(const std::string& name, const std::string& value_name,
                       const std::string& help,
                       std::function<void(const std::string&)> take) {
  const auto set = [take = std::move(take)](const std::string& value) {
    take(value);
    return absl::OkStatus();
  };
  flags_.push_back({name, value_name, help, set, "", nullptr, {}});
}

void CommandLine::OptionalText(const std::string& name,
                               const std::string& value_name,
                               const std::string& help, const std::string& bare,
                               std::function<bool(const std::string&)> is_value,
                               std::optional<std::string>* out) {
  const auto set = [name, out](const std::string& value) {
    if (value.empty()) return Wrong(name, value, "a value");
    *out = value;
    return absl::OkStatus();
  };
  flags_.push_back({name,
                    absl::StrCat("[", value_name, "]"),
                    help,
                    set,
                    bare,
                    std::move(is_value),
                    {}});
}

void CommandLine::Alias(const std::string& alias, const std::string& name) {
  for (Flag& flag : flags_) {
    if (flag.name == name) flag.aliases.push_back(alias);
  }
}

const CommandLine::Flag* CommandLine::Find(std::string name) const {
  name = Normalized(std::move(name));
  for (const Flag& flag : flags_) {
    const auto& aliases = flag.aliases;
    if (flag.name == name ||
        std::find(aliases.begin(), aliases.end(), name) != aliases.end()) {
      return &flag;
    }
  }
  return nullptr;
}

absl::Status CommandLine::Unknown(const std::string& argument) const {
  std::vector<std::string> known;
  for (const Flag& flag : flags_) {
    known.push_back(flag.name);
    known.insert(known.end(), flag.aliases.begin(), flag.aliases.end());
  }
  std::string nearest = NearestName(argument, known);
  for (const Flag& flag : flags_) {
    const auto& aliases = flag.aliases;
    if (std::count(aliases.begin(), aliases.end(), nearest) > 0) {
      nearest = flag.name;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no flag ", argument,
      nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
}

absl::StatusOr<std::vector<std::string>> CommandLine::Parse(
    const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    help_asked_ |= argument == "--help" || argument == "-h";
  }
  std::vector<std::string> rest;
  if (help_asked_) return rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      rest.insert(rest.end(), arguments.begin() + i + 1, arguments.end());
      break;
    }
    if (argument.size() < 2 || argument[0] != '-') {
      rest.push_back(argument);
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string typed = argument.substr(0, equals);
    const Flag* flag = Find(typed);
    if (flag == nullptr) return Unknown(typed);
    std::string value = flag->bare;
    if (equals != argument.npos) {
      value = argument.substr(equals + 1);
    } else if (flag->is_value == nullptr) {
      if (i + 1 == arguments.size() ||
          absl::StartsWith(arguments[i + 1], "--")) {
        return absl::InvalidArgumentError(absl::StrCat(
            flag->name, " needs a value: ", flag->name, " ", flag->value_name));
      }
      value = arguments[++i];
    } else if (i + 1 < arguments.size() && flag->is_value(arguments[i + 1])) {
      value = arguments[++i];
    }
    RETURN_IF_ERROR(flag->set(value));
  }
  return rest;
}

std::string CommandLine::Help() const {
  std::string text = absl::StrCat("usage: ", usage_, "\n\n", about_, "\n");
  if (!flags_.empty()) absl::StrAppend(&text, "\nflags:\n");
  for (const Flag& flag : flags_) {
    std::string left = absl::StrCat("  ", flag.name);
    if (!flag.value_name.empty()) absl::StrAppend(&left, " ", flag.value_name);
    if (left.size() >= kHelpColumn) {
      absl::StrAppend(&text, left, "\n", std::string(kHelpColumn, ' '));
    } else {
      absl::StrAppend(&text, left, std::string(kHelpColumn - left.size(), ' '));
    }
    absl::StrAppend(&text, flag.help, "\n");
  }
  return text;
}

std::optional<int> ParseFlags(const std::string& program, int argc,
                              const char* const* argv, CommandLine* line) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  auto answer = AnswerCompletion(*line, arguments, nullptr);
  if (!answer) answer = AnswerManual(*line, arguments);
  if (answer) {
    std::printf("%s", answer->c_str());
    return 0;
  }
  if (std::count(arguments.begin(), arguments.end(), "--version") > 0) {
    std::printf("%s %s\n", program.c_str(), Version().c_str());
    return 0;
  }
  const auto rest = line->Parse(arguments);
  absl::Status status = rest.status();
  if (status.ok() && !rest->empty()) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "unexpected argument \"", rest->front(), "\": it takes flags only"));
  }
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %s; see --help\n", program.c_str(),
                 std::string(status.message()).c_str());
    return 2;
  }
  if (!line->help_asked()) return std::nullopt;
  std::printf("%s", line->Help().c_str());
  return 0;
}

}  // namespace flotilla
