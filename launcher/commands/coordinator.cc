#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "launcher/commands/command.h"
#include "launcher/programs.h"

namespace flotilla {

// Becomes the program: its own --help, signals and exit code are the user's.
int RunCoordinator(const Arguments& arguments) {
  const auto program = FindProgram("flotilla-coordinator");
  if (!program.ok()) return Report("coordinator", program.status());
  std::vector<std::string> words = {*program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  return Report("coordinator",
                absl::InternalError(absl::StrCat(
                    "cannot start ", *program, ": ", strerrordesc_np(errno))));
}

}  // namespace flotilla
