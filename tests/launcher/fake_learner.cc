// Stands in for flotilla-learner: takes its command line, has its lifeline, its
// signals, an env worker or a seat in the run, and trains nothing. FAKE_LEARNER
// says what it does; RUN/events tells what happened, a line each.

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "services/base/exit_codes.h"
#include "services/base/lifeline.h"
#include "services/base/secret.h"
#include "services/base/shutdown.h"
#include "services/base/status_macros.h"
#include "services/base/subprocess.h"
#include "services/coordinator/coordinator_client.h"

namespace flotilla {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

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
    if (mode == "finish") return Finish("solved");
    if (mode == "finish_preempted") return Finish("preempted");
    if (mode == "crash") return Fail(1, "the sky fell");
    if (mode == "unusable") return Fail(2, "the model does not fit");
    if (mode == "crash_once") return CrashOnce();
    if (mode == "train") return TrainUntilSignal();
    if (mode == "deaf") return IgnoreSignals();
    if (mode == "join" || mode == "join_and_give_up") return JoinPeers(mode);
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

  int Finish(const std::string& status) {
    if (rank() == "0") {
      std::ofstream(folder() + "/summary.json")
          << R"({"status": ")" << status << R"(", "env_id": "CartPole-v1",)"
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
    return Finish("solved");
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

  // As flotilla-learner does, of which some end what they were in by giving up.
  int JoinPeers(const std::string& mode) {
    auto seat = TakeSeat();
    absl::Status ended = seat.status();
    if (ended.ok()) ended = TrainWithPeers(seat->get(), mode);
    if (seat.ok()) {
      (*seat)->Leave(std::string(ended.message())).IgnoreError();
    }
    if (absl::IsAborted(ended)) return kExitDone;  // others have finished it
    return Fail(absl::IsResourceExhausted(ended) ? kExitHopeless : kExitFailed,
                std::string(ended.message()));
  }

  absl::StatusOr<std::unique_ptr<CoordinatorClient>> TakeSeat() {
    v1::Member self;
    self.set_id(flags_["--member_id"]);
    self.set_incarnation(std::stoull(flags_["--incarnation"]));
    self.set_role(v1::LEARNER);
    self.set_host("here");
    self.set_pid(getpid());
    self.set_node_rank(std::stoi(flags_["--node_rank"]));
    self.set_local_rank(std::stoi(flags_["--local_rank"]));
    self.set_requested_rank(std::stoi(rank()) + 1);
    RpcCredentials credentials;
    credentials.token_file = flags_["--token-file"];
    ASSIGN_OR_RETURN(const std::string secret,
                     ReadSecret(flags_["--secret_file"]));
    return JoinRun(flags_["--coordinator"], self, credentials, kPatience,
                   secret);
  }

  absl::Status TrainWithPeers(CoordinatorClient* seat,
                              const std::string& mode) {
    for (;;) {
      ASSIGN_OR_RETURN(const v1::Assignment place,
                       seat->JoinGeneration(0, false, kPatience));
      Tell("trains " + rank());
      if (mode == "join_and_give_up") {
        // The peers are in this generation, and know it.
        while (CountTraining() < place.world_size()) usleep(5000);
        return absl::ResourceExhaustedError("the loss is not finite");
      }
      const std::stop_token fence = seat->Fence(place.generation());
      while (!fence.stop_requested()) usleep(5000);
      // A collective's abort takes its time, which is longer than that of a
      // launcher that waits for nobody.
      sleep(1);
    }
  }

  int CountTraining() {
    const std::string events = Events();
    int count = 0;
    for (size_t at = 0; (at = events.find("trains", at)) != events.npos; ++at) {
      ++count;
    }
    return count;
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
