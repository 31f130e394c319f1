// flotilla: the one command that users type. Starts and supervises training,
// and talks to running jobs.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "launcher/commands/command.h"
#include "services/base/lifeline.h"
#include "services/base/nearest_name.h"
#include "services/base/subprocess.h"
#include "services/rpc/grpc_log.h"

namespace flotilla {
namespace {

struct Command {
  const char* name;
  const char* about;
  int (*run)(const Arguments&);
};

constexpr Command kCommands[] = {
    {"train", "train, on this machine or as one node of many", RunTrain},
    {"evaluate", "play episodes with a trained policy", RunEvaluate},
    {"status", "what a run is doing", RunStatus},
    {"stop", "ask a run to save a checkpoint and finish", RunStop},
    {"envs", "list the environments", RunEnvs},
    {"check-env", "check an env server against the protocol, by playing it",
     RunCheckEnv},
    {"configs", "list the configurations that come with Flotilla", RunConfigs},
    {"doctor", "check this machine, and say what mends what is missing",
     RunDoctor},
    {"coordinator", "serve as the coordinator of a job", RunCoordinator},
    {"serve-envs", "serve environments to learners elsewhere", RunServeEnvs},
    {"health", "ask a coordinator or env server whether it serves", RunHealth},
    {"version", "print the version", RunVersion},
};

std::string Help() {
  std::string text =
      "usage: flotilla COMMAND [arguments]\n\n"
      "Actor-learner reinforcement learning on gRPC services. Start with\n\n"
      "  flotilla train cartpole_fast --nproc-per-node 2\n\ncommands:\n";
  for (const Command& command : kCommands) {
    absl::StrAppend(&text, "  ", command.name,
                    std::string(13 - std::string(command.name).size(), ' '),
                    command.about, "\n");
  }
  absl::StrAppend(&text, "\n`flotilla COMMAND --help` lists its flags.\n");
  return text;
}

int RunHelp(const Arguments& arguments);

int Dispatch(const std::string& name, const Arguments& arguments) {
  if (name == "help" || name == "--help" || name == "-h") {
    return RunHelp(arguments);
  }
  if (name == "--version") return RunVersion({});
  std::vector<std::string> names = {"help"};
  std::string wanted = name;
  for (char& c : wanted) c = c == '_' ? '-' : c;
  for (const Command& command : kCommands) {
    if (wanted == command.name) return command.run(arguments);
    names.push_back(command.name);
  }
  std::fprintf(stderr,
               "flotilla: there is no command \"%s\"%s\n"
               "`flotilla --help` lists the commands\n",
               name.c_str(), DidYouMean(name, names).c_str());
  return kExitUsage;
}

int RunHelp(const Arguments& arguments) {
  if (!arguments.empty() && arguments[0] != "help") {
    return Dispatch(arguments[0], {"--help"});
  }
  std::printf("%s", Help().c_str());
  return kExitDone;
}

// Our own words to people are printed; the log is for what nobody expected.
void SetUpLog(const char* program) {
  FLAGS_logtostderr = true;
  if (std::getenv("GLOG_minloglevel") == nullptr) {
    FLAGS_minloglevel = google::GLOG_WARNING;
  }
  google::InitGoogleLogging(program);
  QuietGrpcLog();
}

}  // namespace
}  // namespace flotilla

int main(int argc, char** argv) {
  flotilla::StartLifelineWatch();
  flotilla::SetUpLog(argv[0]);
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) {
    std::fprintf(stderr, "%s", flotilla::Help().c_str());
    return flotilla::kExitUsage;
  }
  try {
    return flotilla::Dispatch(words[0], {words.begin() + 1, words.end()});
  } catch (const std::system_error& e) {  // std::thread throws
    const bool limit = e.code() == std::errc::resource_unavailable_try_again;
    std::fprintf(stderr, "flotilla %s: %s%s\n", words[0].c_str(), e.what(),
                 limit ? ("; " + flotilla::ProcessLimitHint()).c_str() : "");
    return flotilla::kExitFailed;
  }
}
