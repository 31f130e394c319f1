// What recording games costs the thread that plays, a step and environment: 3 ns
// where episodes have 200 steps and 7 where they have 20, on a machine where
// cartpole_fast takes 5500 ns of CPU for each.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "learner/actor/game_tapes.h"
#include "learner/training/game_keeper.h"
#include "services/base/scratch_folder.h"
#include "services/env/recorded_games.h"

namespace flotilla {
namespace {

// Least of a few, in CPU time.
double NanosecondsAStep(int rows, int length, const std::string& folder) {
  constexpr int kRepeats = 15, kSteps = 1600000;
  v1::EnvSpec spec;
  v1::Leaf* action = spec.add_action();
  action->set_dtype(v1::INT64);
  action->set_num_values(2);
  v1::EnvConfig env;
  GameKeeper keeper(folder + "/training.games", GamesOf(env, spec), 4);
  GameTapes tapes({.sink = &keeper, .max_bytes = 4 << 20}, spec, /*seed=*/1,
                  /*slots=*/1, rows);
  tapes.Began(0, 0, /*worker_id=*/0, /*incarnation=*/1, v1::StepBatch());
  std::vector<v1::StepBatch> batch(static_cast<size_t>(length));
  for (int row = 0; row < rows; ++row) {
    v1::StepBatch& last = batch[static_cast<size_t>(row * 7 % length)];
    last.add_final_row(row);
    v1::EpisodeEnd* end = last.add_episode_end();
    end->set_row(row);
    end->set_raw_return(row * 31 % 97);
    end->set_length(length);
  }
  const std::string columns[] = {
      std::string(static_cast<size_t>(rows) * sizeof(int64_t), '\0')};
  double least = 1e9;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const std::clock_t began = std::clock();
    for (int i = 0; i < kSteps / rows; ++i) {
      tapes.Acted(0, columns);
      tapes.Stepped(0, batch[static_cast<size_t>(i % length)]);
    }
    const double seconds =
        static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
    least = std::min(least, 1e9 * seconds / kSteps);
  }
  return least;
}

int Main() {
  const ScratchFolder folder;
  for (const int length : {20, 200}) {
    for (const int rows : {8, 64}) {
      std::printf("%3d steps an episode, %2d environments: %.1f ns a step\n",
                  length, rows, NanosecondsAStep(rows, length, folder.path()));
    }
  }
  return 0;
}

}  // namespace
}  // namespace flotilla

int main() { return flotilla::Main(); }
