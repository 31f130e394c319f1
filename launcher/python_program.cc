#include "launcher/python_program.h"

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/base/subprocess.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

constexpr char kVariable[] = "FLOTILLA_PYTHON";

absl::StatusOr<std::string> FindPython() {
  const char* chosen = std::getenv(kVariable);
  const bool given = chosen != nullptr && *chosen != '\0';
  const std::string python = FindOnPath(given ? chosen : "python3");
  if (!python.empty()) return python;
  return absl::FailedPreconditionError(
      given ? absl::StrCat(kVariable, " is ", chosen,
                           ", which is no program; want a Python")
            : absl::StrCat("this needs Python, and PATH has no python3; "
                           "install it, or set ",
                           kVariable));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> WatchCommand(
    const std::vector<std::string>& arguments) {
  ASSIGN_OR_RETURN(const std::string python, FindPython());
  const std::string package = fs::path(ProgramFolder()).parent_path() /
                              "share/flotilla/python/flotilla_watch";
  if (!fs::exists(package)) {
    return absl::FailedPreconditionError(
        absl::StrCat("there is no ", package, "; build it: make build"));
  }
  std::vector<std::string> command = {python, package};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

}  // namespace flotilla
