#include "launcher/python_program.h"

#include "services/base/python_program.h"
#include "services/base/status_macros.h"

namespace flotilla {

absl::StatusOr<std::vector<std::string>> WatchCommand(
    const std::vector<std::string>& arguments) {
  ASSIGN_OR_RETURN(std::vector<std::string> command,
                   PythonProgram("flotilla_watch", "this needs"));
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

}  // namespace flotilla
