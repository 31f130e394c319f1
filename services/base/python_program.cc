#include "services/base/python_program.h"

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "services/base/subprocess.h"

namespace flotilla {

namespace fs = std::filesystem;

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
  const fs::path prefix = fs::path(ProgramFolder()).parent_path();
  const fs::path ours = prefix / "share/flotilla/python" / package;
  // Of a wheel: packages lie beside flotilla_program, which has bin/.
  for (const fs::path& folder : {ours, prefix.parent_path() / package}) {
    std::error_code error;
    if (fs::exists(folder / "__main__.py", error)) {
      return std::vector<std::string>{python, folder};
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat("there is no ", ours.string(), "; build it: make build"));
}

}  // namespace flotilla
