#include "launcher/python_program.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
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

absl::Status Become(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  std::fflush(stdout);
  execv(argv[0], argv.data());
  return absl::InternalError(
      absl::StrCat("cannot start ", argv[0], ": ", strerrordesc_np(errno)));
}

}  // namespace flotilla
