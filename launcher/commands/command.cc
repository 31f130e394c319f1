#include "launcher/commands/command.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "launcher/completion_values.h"
#include "services/base/completion.h"
#include "services/base/manual.h"

namespace flotilla {

int Report(const std::string& command, const absl::Status& status) {
  std::fprintf(stderr, "flotilla %s: %s\n", command.c_str(),
               std::string(status.message()).c_str());
  const bool usage =
      absl::IsInvalidArgument(status) || absl::IsNotFound(status);
  return usage ? kExitUsage : kExitFailed;
}

int ReportUsage(const std::string& command, const absl::Status& status) {
  Report(command, status);
  std::fprintf(stderr, "`flotilla %s --help` lists the flags\n",
               command.c_str());
  return kExitUsage;
}

ParsedLine ParseLine(const std::string& command, const Arguments& arguments,
                     size_t most, CommandLine* line) {
  ParsedLine result;
  auto answer = AnswerCompletion(*line, arguments, CompletionValues);
  if (!answer) answer = AnswerManual(*line, arguments);
  if (answer) {
    std::printf("%s", answer->c_str());
    result.exit_code = kExitDone;
    return result;
  }
  auto positional = line->Parse(arguments);
  if (!positional.ok()) {
    result.exit_code = ReportUsage(command, positional.status());
  } else if (line->help_asked()) {
    std::printf("%s", line->Help().c_str());
    result.exit_code = kExitDone;
  } else if (positional->size() > most) {
    result.exit_code = ReportUsage(
        command, absl::InvalidArgumentError(absl::StrCat(
                     "unexpected argument \"", (*positional)[most], "\"")));
  } else {
    result.positional = *std::move(positional);
  }
  return result;
}

}  // namespace flotilla
