// Stands in for flotilla-learner: takes its command line, has its lifeline, its
// signals and an env worker, and trains nothing. FAKE_LEARNER says what it
// does; RUN/events tells what happened, a line each.

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "services/base/lifeline.h"
#include "services/base/shutdown.h"
#include "services/base/subprocess.h"

namespace flotilla {
namespace {

class FakeLearner {
 public:
  FakeLearner(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string flag = argv[i];
      const size_t equals = flag.find('=');
      flags_[flag.substr(0, equals)] =
          equals == flag.npos ? "" : flag.substr(equals + 1);
    }
  }

  int Run(const std::string& mode) {
    if (flags_.count("--evaluate") > 0) return Evaluate(mode);
    Tell("start " + rank() + " incarnation " + flags_["--incarnation"] +
         " resume " + (Resumes() ? flags_["--resume"] : "-") + " pid " +
         std::to_string(getpid()));
    if (mode == "finish") return Finish();
    if (mode == "crash") return Fail(1, "the sky fell");
    if (mode == "unusable") return Fail(2, "the model does not fit");
    if (mode == "crash_once") return CrashOnce();
    if (mode == "train") return TrainUntilSignal();
    if (mode == "deaf") return IgnoreSignals();
    return Fail(2, "FAKE_LEARNER is " + mode);
  }

 private:
  std::string rank() { return flags_["--requested_rank"]; }
  bool Resumes() { return flags_.count("--resume") > 0; }
  std::string folder() { return flags_["--run_dir"]; }

  // One write, so that lines of several learners do not mix.
  void Tell(const std::string& line) {
    std::ofstream(folder() + "/events", std::ios::app) << line + "\n";
  }

  std::string Events() {
    std::ifstream file(folder() + "/events");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  int Fail(int code, const std::string& words) {
    std::ofstream(folder() + "/logs/rank_" + rank() + ".error") << words;
    return code;
  }

  int Finish() {
    if (rank() == "0") {
      std::ofstream(folder() + "/summary.json")
          << R"({"status": "solved", "env_id": "CartPole-v1",)"
          << R"( "algorithm": "ppo", "global_steps": 250000, "updates": 61,)"
          << R"( "world_size": 2})";
    }
    return 0;
  }

  // Rank 1 dies in its first life; rank 0 waits for the second.
  int CrashOnce() {
    if (rank() == "1" && flags_["--restarts"] == "0") raise(SIGKILL);
    while (Events().find("start 1 incarnation 1") == std::string::npos) {
      usleep(5000);
    }
    return Finish();
  }

  std::unique_ptr<Subprocess> StartWorker() {
    auto worker = Subprocess::Start({.argv = {"/proc/self/exe", "--worker"}});
    if (!worker.ok()) return nullptr;
    Tell("worker " + std::to_string((*worker)->pid()));
    return *std::move(worker);
  }

  int TrainUntilSignal() {
    const auto signals = ShutdownSignals::Install();
    const auto worker = StartWorker();
    while ((*signals)->first_signal() == 0) usleep(5000);
    Tell("saved " + rank());
    return (*signals)->first_signal() == SIGINT ? 130 : 75;
  }

  int IgnoreSignals() {
    for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP}) {
      signal(number, SIG_IGN);
    }
    const auto worker = StartWorker();
    for (;;) pause();
  }

  int Evaluate(const std::string& mode) {
    if (mode == "crash") return 1;
    std::ofstream(flags_["--output"])
        << R"({"env_id": "CartPole-v1", "checkpoint": ")"
        << flags_["--evaluate"]
        << R"(", "mean_return": 12.5, "min_return": 10,)"
        << R"( "max_return": 15, "episodes": [)"
        << R"({"return": 10, "length": 10}, {"return": 15, "length": 15}],)"
        << R"( "asked": )" << flags_["--episodes"] << "}";
    return 0;
  }

  std::map<std::string, std::string> flags_;
};

}  // namespace
}  // namespace flotilla

int main(int argc, char** argv) {
  flotilla::StartLifelineWatch();
  if (argc == 2 && std::string(argv[1]) == "--worker") {
    for (;;) pause();
  }
  const char* mode = std::getenv("FAKE_LEARNER");
  return flotilla::FakeLearner(argc, argv).Run(mode == nullptr ? "" : mode);
}
