#include "services/base/manual.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace flotilla {

std::string Roff(const std::string& text) {
  std::string roff;
  for (const auto& line : absl::StrSplit(text, '\n')) {
    const bool request =
        absl::StartsWith(line, ".") || absl::StartsWith(line, "'");
    absl::StrAppend(&roff, roff.empty() ? "" : "\n", request ? "\\&" : "",
                    absl::StrReplaceAll(line, {{"\\", "\\e"}, {"-", "\\-"}}));
  }
  return roff;
}

std::string ManualPart(const CommandLine& line) {
  std::string text =
      absl::StrCat(".SS ", Roff(line.usage()), "\n", Roff(line.about()), "\n");
  for (const CommandLine::Flag& flag : line.flags()) {
    absl::StrAppend(&text, ".TP\n\\fB", Roff(flag.name), "\\fR");
    if (!flag.value_name.empty()) {
      absl::StrAppend(&text, " \\fI", Roff(flag.value_name), "\\fR");
    }
    absl::StrAppend(&text, "\n", Roff(flag.help), "\n");
  }
  return text;
}

std::optional<std::string> AnswerManual(
    const CommandLine& line, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] != kManualWord) return std::nullopt;
  return ManualPart(line);
}

}  // namespace flotilla
