// flotilla: the one command that users type. Starts and supervises training,
// and talks to running jobs.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "launcher/commands/command.h"
#include "services/base/completion.h"
#include "services/base/lifeline.h"
#include "services/base/manual.h"
#include "services/base/nearest_name.h"
#include "services/base/subprocess.h"
#include "services/base/version.h"
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
    {"replay", "play a run's games again, and film them", RunReplay},
    {"status", "what a run is doing", RunStatus},
    {"stop", "ask a run to save a checkpoint and finish", RunStop},
    {"set", "change fields of a run while it goes on", RunSet},
    {"runs", "list runs, and in what they differ", RunRuns},
    {"plot", "compare runs in a table and a picture", RunPlot},
    {"dashboard", "a page that shows runs while they train", RunDashboard},
    {"sweep", "search a configuration, by many runs", RunSweep},
    {"export", "write a trained policy as an ONNX file", RunExport},
    {"push", "put a trained policy on the Hugging Face hub", RunPush},
    {"envs", "list the environments", RunEnvs},
    {"check-env", "check an env server against the protocol, by playing it",
     RunCheckEnv},
    {"configs", "list the configurations that come with Flotilla", RunConfigs},
    {"new", "begin an environment, a network or an algorithm", RunNew},
    {"install", "build what may not be given away: atari", RunInstall},
    {"explain", "what a field of a configuration means", RunExplain},
    {"completion", "print a shell's completion: bash, zsh or fish",
     RunCompletion},
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
  absl::StrAppend(&text,
                  "\n`flotilla COMMAND --help` lists its flags, `flotilla help "
                  "--man | man -l -`\nshows everything.\n");
  return text;
}

const Command* FindCommand(std::string name) {
  for (char& c : name) c = c == '_' ? '-' : c;
  for (const Command& command : kCommands) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

// What a shell asks, of the first word itself; commands answer for theirs.
int AnswerShell(const Arguments& words) {
  const bool help = words.size() == 2 && words[0] == "help";
  if (words.size() == 1 || help) {
    Completion completion;
    for (const Command& command : kCommands) {
      completion.words.push_back({command.name, command.about});
    }
    completion.words.push_back(
        help ? Completion::Word{"--man", "everything, as a manual page"}
             : Completion::Word{"help", "what there is"});
    std::printf("%s", FormatCompletion(completion, words.back()).c_str());
    return kExitDone;
  }
  const Command* command = words.empty() ? nullptr : FindCommand(words[0]);
  if (command == nullptr) return kExitUsage;
  Arguments question = {kCompleteWord};
  question.insert(question.end(), words.begin() + 1, words.end());
  return command->run(question);
}

// flotilla(1), of what each command says of itself.
int PrintManual() {
  std::printf(
      ".TH FLOTILLA 1 \"\" \"Flotilla %s\" \"User Commands\"\n.SH NAME\n"
      "flotilla \\- actor-learner reinforcement learning on gRPC services\n"
      ".SH SYNOPSIS\n.B flotilla\n.I COMMAND\n[arguments]\n.SH COMMANDS\n",
      Version().c_str());
  for (const Command& command : kCommands) {
    std::fflush(stdout);  // some are programs of their own
    if (const int code = command.run({kManualWord}); code != 0) return code;
  }
  std::printf(
      ".SH EXIT STATUS\n0: done. 1: the run failed. 2: wrong usage or "
      "configuration. 75: saved for a signal that\nanother run may follow. "
      "130: saved for Ctrl\\-C.\n.SH FILES\nA run's folder holds "
      "everything; \n.B flotilla explain\nsays what may be configured.\n");
  return kExitDone;
}

bool IsHelp(const std::string& word) {
  return word == "help" || word == "--help" || word == "-h";
}

int RunHelp(const Arguments& arguments);

int Dispatch(const std::string& name, const Arguments& arguments) {
  if (IsHelp(name)) return RunHelp(arguments);
  if (name == "--version") return RunVersion({});
  if (name == kCompleteWord) return AnswerShell(arguments);
  const Command* command = FindCommand(name);
  if (command != nullptr) return command->run(arguments);
  std::vector<std::string> names = {"help"};
  for (const Command& known : kCommands) names.push_back(known.name);
  std::fprintf(stderr,
               "flotilla: there is no command \"%s\"%s\n"
               "`flotilla --help` lists the commands\n",
               name.c_str(), DidYouMean(name, names).c_str());
  return kExitUsage;
}

int RunHelp(const Arguments& arguments) {
  if (!arguments.empty() && arguments[0] == "--man") return PrintManual();
  if (!arguments.empty() && !IsHelp(arguments[0])) {
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
  PrepareGrpc();
}

}  // namespace
}  // namespace flotilla

int main(int argc, char** argv) {
  // Whoever ignored it (exec keeps that) would not let us see how our programs end.
  std::signal(SIGCHLD, SIG_DFL);
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
