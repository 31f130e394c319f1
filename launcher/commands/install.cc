#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "launcher/commands/command.h"
#include "launcher/programs.h"
#include "services/base/nearest_name.h"
#include "services/base/subprocess.h"
#include "services/base/user_folder.h"

namespace flotilla {

int RunInstall(const Arguments& arguments) {
  CommandLine line(
      "flotilla install atari",
      "Builds the emulator of Atari games, the Arcade Learning Environment, "
      "for this user:\nit is GPL-2.0, and so not in what we give away. It "
      "takes its source and the games\nfrom the registry that pip uses, a C++ "
      "compiler, cmake and ninja, and some minutes.");
  const ParsedLine parsed = ParseLine("install", arguments, 1, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  const std::string what =
      parsed.positional.empty() ? "" : parsed.positional[0];
  if (what != "atari") {
    return ReportUsage(
        "install", absl::InvalidArgumentError(
                       absl::StrCat("\"", what, "\" is nothing it can install",
                                    DidYouMean(what, {"atari"}), " (atari)")));
  }
  const std::filesystem::path script =
      std::filesystem::path(ProgramFolder()).parent_path() /
      "share/flotilla/atari/install.sh";
  std::error_code error;
  if (!std::filesystem::exists(script, error)) {
    return Report("install",
                  absl::FailedPreconditionError(absl::StrCat(
                      "there is no ", script.string(),
                      ": was this program copied? Use it where it was built or "
                      "installed")));
  }
  const std::string folder = UserFolder() + "/atari";
  std::printf("building the emulator of Atari games into %s\n", folder.c_str());
  return Report("install", Become({"/bin/bash", script, folder}));
}

}  // namespace flotilla
