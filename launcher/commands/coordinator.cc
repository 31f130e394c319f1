#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "launcher/commands/command.h"
#include "launcher/programs.h"
#include "services/base/completion.h"
#include "services/base/manual.h"
#include "services/base/subprocess.h"
#include "services/rpc/credentials.h"

namespace flotilla {
namespace {

constexpr char kTokenFile[] = "flotilla_coordinator.token";
constexpr absl::Duration kAnswerTimeout = absl::Seconds(10);

// "--run-token" of "--run_token=FILE".
std::string FlagOf(const std::string& argument) {
  std::string flag = argument.substr(0, argument.find('='));
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

// Whether only this host reaches it, by what all of its users reach: a port, or a
// socket without a file.
bool ListensOnLoopback(const Arguments& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (FlagOf(arguments[i]) != "--listen") continue;
    const size_t equals = arguments[i].find('=');
    std::string address;
    if (equals != std::string::npos) {
      address = arguments[i].substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      address = arguments[i + 1];
    }
    return IsLocalAddress(address) && !HasFolder(address);
  }
  return true;
}

// Whether nobody has said who may change the run, and a token of our own can say
// it, as `flotilla train` does.
bool NeedsToken(const Arguments& arguments) {
  constexpr const char* kSettled[] = {
      "--run-token", "--token-file", "--tls-cert", "--tls-key", "--tls-ca",
      "--insecure",  "--help",       "-h",         "--version"};
  return ListensOnLoopback(arguments) &&
         std::none_of(arguments.begin(), arguments.end(),
                      [&](const std::string& argument) {
                        return std::find(
                                   std::begin(kSettled), std::end(kSettled),
                                   FlagOf(argument)) != std::end(kSettled);
                      });
}

// Where the coordinator makes its token. One that is there already is taken
// again, for a coordinator that is started anew, but not from another user.
absl::StatusOr<std::string> TokenPath() {
  std::error_code error;
  const std::string path = std::filesystem::absolute(kTokenFile, error);
  if (error) {
    return absl::InternalError(absl::StrCat(
        "there is no working folder to make a token in: ", error.message()));
  }
  struct stat info = {};
  if (lstat(path.c_str(), &info) == 0 && info.st_uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat(
        path, " is another user's: name a file with --run-token FILE"));
  }
  return path;
}

}  // namespace

// Becomes the program: its own --help, signals and exit code are the user's.
int RunCoordinator(const Arguments& arguments) {
  const auto program = FindProgram("flotilla-coordinator");
  if (!program.ok()) return Report("coordinator", program.status());
  std::vector<std::string> words = {*program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  if (!arguments.empty() &&
      (arguments[0] == kCompleteWord || arguments[0] == kManualWord)) {
    const auto answering = Subprocess::Start({.argv = words});
    if (!answering.ok()) return Report("coordinator", answering.status());
    const auto exit = (*answering)->Wait(kAnswerTimeout);
    return exit ? exit->code : kExitFailed;
  }
  if (NeedsToken(arguments)) {
    const auto token = TokenPath();
    if (!token.ok()) return Report("coordinator", token.status());
    std::printf(
        "everybody on this host may look; learners, env servers and `flotilla "
        "stop` take --token-file %s\n",
        token->c_str());
    words.push_back("--run-token=" + *token);
  }
  return Report("coordinator", Become(words));
}

}  // namespace flotilla
