// How fast an env server in a process of its own feeds a learner on this host.
//
//   flotilla_env_service_bench [seconds per case] [part of the case's name]

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "services/base/subprocess.h"
#include "services/env/env_stream.h"

namespace flotilla {
namespace {

using Clock = std::chrono::steady_clock;

struct Case {
  const char* name;
  v1::Hello hello;
  int64_t least_action = 0;  // the others are drawn from
};

v1::Hello MakeHello(const std::string& env_id, int num_envs, int num_groups,
                    bool share) {
  v1::Hello hello;
  hello.set_learner_id("bench");
  hello.set_incarnation(1);
  hello.set_env_id(env_id);
  hello.set_num_envs(num_envs);
  hello.set_num_groups(num_groups);
  hello.set_offer_shared_memory(share);
  return hello;
}

v1::Hello WithRing(v1::Hello hello) {
  hello.set_offer_ring(true);
  return hello;
}

// Environments without work, each with `bytes` of observation.
v1::Hello MakeFrames(int num_envs, int num_groups, int64_t bytes, bool share) {
  v1::Hello hello = MakeHello("Sleep", num_envs, num_groups, share);
  hello.mutable_options()->mutable_sleep()->set_step_ms(0);
  hello.mutable_options()->mutable_sleep()->set_observation_bytes(bytes);
  return hello;
}

std::vector<Case> Cases() {
  return {
      {"CartPole, 4 rows, ping-pong", MakeHello("CartPole-v1", 4, 1, false)},
      {"CartPole, 4 rows, ping-pong, shared",
       MakeHello("CartPole-v1", 4, 1, true)},
      {"CartPole, 4 rows, ping-pong, ring",
       WithRing(MakeHello("CartPole-v1", 4, 1, true))},
      {"gym:CartPole-v1, 4 rows, ping-pong, shared",
       MakeHello("gym:CartPole-v1", 4, 1, true)},
      {"gym:CartPole-v1, 4 rows, ping-pong, ring",
       WithRing(MakeHello("gym:CartPole-v1", 4, 1, true))},
      {"CartPole, 128 rows, 2 groups", MakeHello("CartPole-v1", 128, 2, false)},
      {"7056 bytes, 16 a message, 2 groups, inline",
       MakeFrames(32, 2, 7056, false)},
      {"7056 bytes, 16 a message, 2 groups, shared",
       MakeFrames(32, 2, 7056, true)},
      {"7056 bytes, 16 a message, 2 groups, ring",
       WithRing(MakeFrames(32, 2, 7056, true))},
      // Episodes of 500 steps: nobody says stop.
      {"PointNav, 32 rows, 2 groups, shared",
       MakeHello("PointNav", 32, 2, true), 1},
      {"PointNav, 32 rows, 2 groups, ring",
       WithRing(MakeHello("PointNav", 32, 2, true)), 1},
      {"ALE/Pong-v5, 8 rows, 1 group, shared",
       MakeHello("ALE/Pong-v5", 8, 1, true)},
      {"ALE/Pong-v5, 8 rows, 2 groups, shared",
       MakeHello("ALE/Pong-v5", 8, 2, true)},
  };
}

// One server, so that nothing of a case before is in its memory.
std::unique_ptr<Subprocess> StartServer(const std::string& address) {
  SubprocessOptions options;
  const char* bin = std::getenv("FLOTILLA_BIN");
  const std::string folder =
      bin != nullptr ? bin : absl::StrCat(ProgramFolder(), "/../../bin");
  options.argv = {absl::StrCat(folder, "/flotilla-envserver"), "--listen",
                  address};
  options.env = {{"GLOG_minloglevel", "1"}};
  auto server = Subprocess::Start(options);
  CHECK(server.ok()) << server.status();
  return *std::move(server);
}

std::vector<v1::ActionBatch> MakeActions(const v1::EnvSpec& spec, int groups,
                                         int rows) {
  std::vector<v1::ActionBatch> actions(groups);
  for (int g = 0; g < groups; ++g) {
    actions[g].set_group(g);
    for (int i = 0; i < spec.action_size(); ++i) {
      actions[g].add_action(std::string(rows * 8, '\0'));
    }
  }
  return actions;
}

// Actions that a policy without knowledge would choose; the games are then as
// long and as busy as those that others' benchmarks play.
void ChooseAtRandom(int64_t least, int64_t num_values, std::minstd_rand* random,
                    std::string* column) {
  for (size_t i = 0; i < column->size(); i += 8) {
    (*column)[i] =
        static_cast<char>(least + (*random)() % (num_values - least));
  }
}

void RunCase(const Case& test, double seconds) {
  const std::string folder =
      std::filesystem::temp_directory_path() / absl::StrCat("bench.", getpid());
  std::filesystem::create_directory(folder);
  const std::string address = absl::StrCat("unix:", folder, "/env.sock");
  const auto server = StartServer(address);
  EnvStreamOptions options;
  options.ring_spin = absl::Microseconds(50);
  auto opened = OpenEnvStream(address, test.hello, options);
  if (!opened.ok()) {
    std::printf("%-44s %s\n", test.name,
                std::string(opened.status().message()).c_str());
    return;
  }
  EnvStream& stream = **opened;
  const int groups = test.hello.num_groups();
  const int rows = test.hello.num_envs() / groups;
  auto actions = MakeActions(stream.spec(), groups, rows);
  const int64_t num_values = stream.spec().action(0).num_values();
  std::minstd_rand random(1);
  std::vector<v1::StepBatch> batches(groups);
  // Windows, because others may use the machine meanwhile: the median is what
  // the run got, the best what it can.
  constexpr int kWindows = 20;
  constexpr int kWarmUp = 20;  // messages, resets among them
  std::vector<double> rates;   // messages a second
  std::vector<char> rollout(64 << 20);
  int64_t messages = -kWarmUp;
  int64_t window_begin = 0;
  auto begin = Clock::now();
  for (int next = 0; rates.size() < kWindows; next = (next + 1) % groups) {
    v1::StepBatch& batch = batches[next];
    CHECK(stream.Receive(&batch).ok());
    CHECK_EQ(batch.error_size(), 0) << batch.error(0).message();
    // What a learner does with a batch: one copy.
    const absl::string_view observation = stream.Observation(batch, 0);
    std::memcpy(rollout.data(), observation.data(), observation.size());
    v1::ActionBatch& action = actions[batch.group()];
    ChooseAtRandom(test.least_action, num_values, &random,
                   action.mutable_action(0));
    action.set_seq(batch.seq());
    CHECK(stream.Send(action).ok());
    if (++messages == 0) begin = Clock::now();
    if (messages <= 0 || messages % 8 != 0) continue;
    const auto now = Clock::now();
    const double passed = std::chrono::duration<double>(now - begin).count();
    if (passed < seconds / kWindows) continue;
    rates.push_back(static_cast<double>(messages - window_begin) / passed);
    begin = now;
    window_begin = messages;
  }
  std::sort(rates.begin(), rates.end());
  const auto print = [&](const char* name, double rate) {
    std::printf("  %s %8.0f steps/s %7.1f us a message", name, rate * rows,
                1e6 / rate);
  };
  std::printf("%-44s", test.name);
  print("median", rates[kWindows / 2]);
  print("best", rates.back());
  std::printf("\n");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace flotilla

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 3;
  const char* part = argc > 2 ? argv[2] : "";
  for (const auto& test : flotilla::Cases()) {
    if (std::strstr(test.name, part)) flotilla::RunCase(test, seconds);
  }
}
