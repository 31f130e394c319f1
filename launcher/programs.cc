#include "launcher/programs.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "services/base/subprocess.h"

namespace flotilla {

absl::StatusOr<std::string> FindProgram(const std::string& name) {
  const char* folder = std::getenv("FLOTILLA_PROGRAM_FOLDER");
  const std::string path = absl::StrCat(
      folder != nullptr ? std::string(folder) : ProgramFolder(), "/", name);
  if (access(path.c_str(), X_OK) == 0) return path;
  return absl::NotFoundError(absl::StrCat(
      "there is no program ", path, "; run: ", MendCommand(),
      name == "flotilla-learner"
          ? " (a build without LibTorch, and the wheel flotilla-envhost, have "
            "no flotilla-learner)"
          : "",
      ", and use programs where they were built or installed: they need each "
      "other in one folder"));
}

bool OfWheel() {
  const std::filesystem::path folder = ProgramFolder();
  return folder.parent_path().filename() == "flotilla_program";
}

std::string MendCommand() {
  return OfWheel() ? "pip install --force-reinstall flotilla-*.whl"
                   : "cmake/setup.sh runtime && make build";
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
