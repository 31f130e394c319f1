#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "launcher/commands/command.h"
#include "launcher/programs.h"
#include "services/base/atomic_file.h"
#include "services/base/nearest_name.h"
#include "services/base/status_macros.h"
#include "services/base/subprocess.h"
#include "services/base/text_file.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

// Where the projects lie that this command copies: beside bin/, installed or
// built.
absl::StatusOr<fs::path> TemplatesFolder() {
  std::error_code error;
  const fs::path folder = fs::weakly_canonical(
      fs::path(ProgramFolder()) / "../share/flotilla/templates", error);
  if (fs::is_directory(folder, error)) return folder;
  return absl::NotFoundError(absl::StrCat(
      "there is no ", folder.string(),
      ": was this program copied? Use it where it was built or installed"));
}

std::vector<std::string> Kinds(const fs::path& templates) {
  std::vector<std::string> kinds;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(templates, error)) {
    kinds.push_back(entry.path().filename());
  }
  std::sort(kinds.begin(), kinds.end());
  return kinds;
}

// A name that CMake and C++ take: "my-net" is my_net.
std::string ProjectName(const fs::path& folder) {
  std::string name = fs::absolute(folder).lexically_normal().filename();
  if (name.empty()) {  // a trailing slash
    name = fs::absolute(folder).lexically_normal().parent_path().filename();
  }
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  // Targets that CMake has already.
  static const std::set<std::string> kTaken = {
      "all",     "clean", "edit_cache", "help",          "install",
      "package", "test",  "depend",     "rebuild_cache", "package_source"};
  if (name.empty() || !std::isalpha(static_cast<unsigned char>(name[0])) ||
      kTaken.contains(name)) {
    name = "my_" + name;
  }
  return name;
}

absl::Status CheckEmpty(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) return absl::OkStatus();
  if (!fs::is_directory(folder, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder.string(), " is a file; name a folder"));
  }
  if (!fs::is_empty(folder, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder.string(),
        " is not empty, and nothing in it is to be lost; name a new folder"));
  }
  return absl::OkStatus();
}

absl::Status Copy(const fs::path& from, const fs::path& to) {
  const std::string name = ProjectName(to);
  std::error_code error;
  fs::create_directories(to, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot make ", to.string(), ": ", error.message()));
  }
  for (const auto& entry : fs::directory_iterator(from, error)) {
    const auto text = WholeFile(entry.path());
    if (!text) {
      return absl::NotFoundError(
          absl::StrCat("cannot read ", entry.path().string()));
    }
    RETURN_IF_ERROR(WriteFileAtomically(
        to / absl::StrReplaceAll(entry.path().filename().string(),
                                 {{"PROJECT", name}}),
        absl::StrReplaceAll(*text, {{"@NAME@", name}})));
  }
  return absl::OkStatus();
}

// CMake finds the package of the flotilla that is on PATH; another has to be named.
std::string NextSteps(const fs::path& folder) {
  std::error_code error;
  const fs::path prefix =
      fs::weakly_canonical(fs::path(ProgramFolder()) / "..", error);
  const bool installed = fs::exists(prefix / "lib/cmake/Flotilla", error);
  std::string steps;
  if (!installed && OfWheel()) {
    steps =
        "a wheel has no headers, and the project needs an installation that "
        "has. In a checkout:\n"
        "  make build && cmake --install build --prefix PREFIX\n";
  } else if (!installed) {
    steps = absl::StrCat(
        "this flotilla is not installed, and the project needs one that is:\n"
        "  cmake --install ",
        prefix.string(), " --prefix PREFIX\n");
  }
  absl::StrAppend(&steps, "next (README.md there goes on from here):\n  cd ",
                  folder.string(), "\n  cmake -B build -DFlotilla_ROOT=",
                  installed ? prefix.string() : "PREFIX",
                  "\n  cmake --build build\n");
  return steps;
}

absl::Status Make(const std::string& kind, const fs::path& folder) {
  ASSIGN_OR_RETURN(const fs::path templates, TemplatesFolder());
  const std::vector<std::string> kinds = Kinds(templates);
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", kind, "\" is nothing it can make", DidYouMean(kind, kinds), " (",
        absl::StrJoin(kinds, ", "), ")"));
  }
  RETURN_IF_ERROR(CheckEmpty(folder));
  RETURN_IF_ERROR(Copy(templates / kind, folder));
  std::printf("%s: %s of your own\n%s", folder.c_str(), kind.c_str(),
              NextSteps(folder).c_str());
  return absl::OkStatus();
}

}  // namespace

int RunNew(const Arguments& arguments) {
  CommandLine line(
      "flotilla new KIND DIR",
      "Writes a project of your own into a new folder: source, build, test and "
      "README.\n\n"
      "  flotilla new environment my_env  environments in C++: env.server\n"
      "  flotilla new network my_net      a network in C++: model.plugin\n"
      "  flotilla new algorithm my_algo   an algorithm: custom.library");
  const ParsedLine parsed = ParseLine("new", arguments, 2, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  if (parsed.positional.size() < 2) {
    return ReportUsage(
        "new", absl::InvalidArgumentError("expected a kind and a folder, as in "
                                          "`flotilla new network my_net`"));
  }
  const absl::Status made = Make(parsed.positional[0], parsed.positional[1]);
  return made.ok() ? kExitDone : Report("new", made);
}

}  // namespace flotilla
