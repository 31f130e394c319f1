#include "services/base/python_program.h"

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "services/base/subprocess.h"

namespace flotilla {

absl::StatusOr<std::vector<std::string>> PythonProgram(
    const std::string& package, const std::string& who,
    const std::string& modules) {
  constexpr char kVariable[] = "FLOTILLA_PYTHON";
  const char* chosen = std::getenv(kVariable);
  const bool given = chosen != nullptr && *chosen != '\0';
  const std::string python = FindOnPath(given ? chosen : "python3");
  if (python.empty()) {
    return absl::FailedPreconditionError(
        given ? absl::StrCat(kVariable, " is ", chosen,
                             ", which is no program; want a Python", modules)
              : absl::StrCat(who,
                             " Python, and PATH has no python3; install "
                             "it, or set ",
                             kVariable));
  }
  const std::filesystem::path folder =
      std::filesystem::path(ProgramFolder()).parent_path() /
      "share/flotilla/python" / package;
  if (!std::filesystem::exists(folder)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "there is no ", folder.string(), "; build it: make build"));
  }
  return std::vector<std::string>{python, folder};
}

}  // namespace flotilla
