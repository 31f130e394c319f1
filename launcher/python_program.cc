#include "launcher/python_program.h"

#include "services/base/python_program.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

absl::StatusOr<std::vector<std::string>> CommandOf(
    const std::string& package, const std::vector<std::string>& arguments) {
  ASSIGN_OR_RETURN(std::vector<std::string> command,
                   PythonProgram(package, "this needs"));
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> WatchCommand(
    const std::vector<std::string>& arguments) {
  return CommandOf("flotilla_watch", arguments);
}

absl::StatusOr<std::vector<std::string>> PackageCommand(
    const std::vector<std::string>& arguments) {
  return CommandOf("flotilla", arguments);
}

absl::StatusOr<std::vector<std::string>> VideoCommand(
    const std::vector<std::string>& arguments) {
  return CommandOf("flotilla_video", arguments);
}

}  // namespace flotilla
