// The latency of an all-reduce between processes of this host:
//
//   collective_bench [RANKS]
//
// prints microseconds by size, for shared memory and for Gloo over loopback.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "learner/collective/gloo_collective.h"
#include "learner/collective/shm_collective.h"
#include "tests/learner/collective/ranks.h"

namespace flotilla {
namespace {

constexpr int64_t kCounts[] = {1, 1000, 9250, 100'000, 1'750'000, 14'000'000};

double Micros(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// Median and 90th percentile of one call, in microseconds.
std::pair<double, double> Measure(Collective* collective, int64_t count) {
  const int calls = count > 500'000 ? 100 : 2000;
  torch::Tensor tensor = torch::zeros({count});
  std::vector<double> micros;
  for (int i = 0; i < calls; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const absl::Status status = collective->AllReduceSum(tensor);
    micros.push_back(Micros(std::chrono::steady_clock::now() - start));
    CHECK(status.ok()) << status;
  }
  std::sort(micros.begin(), micros.end());
  return {micros[calls / 2], micros[calls * 9 / 10]};
}

void RunRank(const std::string& folder, int rank, int world_size) {
  at::set_num_threads(1);
  FakeCoordinatorClient coordinator(folder);
  const absl::Duration timeout = absl::Seconds(60);
  for (const std::string kind : {"shm", "gloo"}) {
    const v1::Assignment assignment = MakeAssignment(rank, world_size);
    auto made = kind == "shm"
                    ? MakeShmCollective(assignment, &coordinator, timeout)
                    : MakeGlooCollective(assignment, &coordinator, timeout);
    CHECK(made.ok() && *made != nullptr) << made.status();
    for (const int64_t count : kCounts) {
      const auto [median, p90] = Measure(made->get(), count);
      if (rank != 0) continue;
      std::printf("%-4s  %d ranks  %8ld floats  %9.1f us  p90 %9.1f us\n",
                  kind.c_str(), world_size, static_cast<long>(count), median,
                  p90);
      std::fflush(stdout);
    }
  }
}

int RunAll(int world_size) {
  TempDir folder;
  for (int rank = 0; rank < world_size; ++rank) {
    if (::fork() != 0) continue;
    ::execl("/proc/self/exe", "collective_bench", folder.path().c_str(),
            absl::StrCat(rank).c_str(), absl::StrCat(world_size).c_str(),
            nullptr);
    ::_exit(1);
  }
  int failed = 0;
  for (int status; ::wait(&status) > 0;) failed += status != 0;
  return failed;
}

}  // namespace
}  // namespace flotilla

int main(int argc, char** argv) {
  if (argc == 4) {
    flotilla::RunRank(argv[1], std::atoi(argv[2]), std::atoi(argv[3]));
    return 0;
  }
  return flotilla::RunAll(argc > 1 ? std::atoi(argv[1]) : 2);
}
