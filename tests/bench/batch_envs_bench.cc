// How many rows a second environments that step together make on one core, without
// a server: actions are ready, and nobody reads what is observed. Seconds are those
// that this thread had of its core, so that others on the machine do not count.
//
//   flotilla_batch_envs_bench [rows] [seconds per environment]

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "envserver/registry.h"
#include "glog/logging.h"

namespace flotilla {
namespace {

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Ignore final : VectorEnv::Listener {
  void OnGroupDone(int, absl::Duration) override {}
  void OnFailure(absl::Status status) override { LOG(FATAL) << status; }
};

void Run(const std::string& env_id, int rows, double seconds) {
  const EnvironmentRegistry registry;
  const RegistryFactory factory(&registry, /*threads=*/1);
  v1::Hello hello;
  hello.set_env_id(env_id);
  hello.set_num_envs(rows);
  hello.set_num_groups(1);
  hello.set_seed(1);
  Ignore listener;
  auto made = factory.Make(hello, &listener);
  CHECK(made.ok()) << made.status();
  VectorEnv& env = **made;
  std::vector<std::vector<std::byte>> memory;
  for (const v1::Leaf& leaf : env.spec().observation()) {
    size_t bytes = leaf.dtype() == v1::FLOAT32 ? sizeof(float) : 1;
    for (const int64_t dim : leaf.shape()) bytes *= static_cast<size_t>(dim);
    memory.emplace_back(bytes * static_cast<size_t>(rows));
  }
  const std::vector<std::span<std::byte>> observation(memory.begin(),
                                                      memory.end());
  // Each row does something else, and for a while the same.
  constexpr int kKinds = 16, kSame = 4;
  const int64_t choices = env.spec().action(0).num_values();
  std::minstd_rand random(1);
  std::vector<v1::ActionBatch> actions(kKinds);
  for (v1::ActionBatch& batch : actions) {
    std::string* column = batch.add_action();
    for (int r = 0; r < rows; ++r) {
      const int64_t action = static_cast<int64_t>(random()) % choices;
      column->append(reinterpret_cast<const char*>(&action), sizeof(action));
    }
  }
  v1::StepBatch step;
  env.Reset(0, observation, &step);
  constexpr int kWindows = 20;
  std::vector<double> rates;  // rows a second
  int64_t at = 0;
  while (rates.size() < kWindows) {
    const double begin = CpuSeconds();
    int64_t steps = 0;
    double passed = 0;
    while (passed < seconds / kWindows) {
      for (int i = 0; i < 16; ++i, ++at, ++steps) {
        env.Step(0, actions[static_cast<size_t>(at / kSame % kKinds)],
                 observation, &step);
      }
      passed = CpuSeconds() - begin;
    }
    rates.push_back(static_cast<double>(steps * rows) / passed);
  }
  std::sort(rates.begin(), rates.end());
  std::printf("%-12s %5d rows  median %6.2f M rows/s  best %6.2f M rows/s\n",
              env_id.c_str(), rows, rates[kWindows / 2] * 1e-6,
              rates.back() * 1e-6);
}

}  // namespace
}  // namespace flotilla

int main(int argc, char** argv) {
  const int rows = argc > 1 ? std::atoi(argv[1]) : 1024;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 2;
  for (const char* id :
       {"Breakout", "Invaders", "Pong", "Snake", "CartPole-v1"}) {
    flotilla::Run(id, rows, seconds);
  }
}
