#include "launcher/programs.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "services/base/subprocess.h"

namespace flotilla {

absl::StatusOr<std::string> FindProgram(const std::string& name) {
  const char* folder = std::getenv("FLOTILLA_PROGRAM_FOLDER");
  const std::string path = absl::StrCat(
      folder != nullptr ? std::string(folder) : ProgramFolder(), "/", name);
  if (access(path.c_str(), X_OK) == 0) return path;
  return absl::NotFoundError(
      absl::StrCat("there is no program ", path, "; build it: make build",
                   name == "flotilla-learner"
                       ? " (a build without LibTorch has no flotilla-learner)"
                       : "",
                   ", and use programs where they were built: they need each "
                   "other in one folder"));
}

}  // namespace flotilla
