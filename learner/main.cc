// flotilla-learner: one rank of training, or the player behind
// `flotilla evaluate`. Started by the launcher; see launcher/.

#include <cstdio>
#include <cstdlib>

#include "learner/learner_main.h"

int main(int argc, char** argv) {
  bool on_cpu = true;
  const int exit_code = flotilla::LearnerMain(
      argc, argv,
      [&on_cpu](const flotilla::DeviceRequest& request, int local_rank) {
        auto chosen = flotilla::ChooseRankDevice(request, local_rank);
        on_cpu = !chosen.ok() || chosen->device.is_cpu();
        return chosen;
      });
  // Torch takes a third of the time that a short run's process lives to take its
  // operators apart. On a GPU, profilers collect at exit what is still on its way.
  if (on_cpu) {
    std::fflush(nullptr);
    std::quick_exit(exit_code);
  }
  return exit_code;
}
