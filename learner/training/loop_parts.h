#ifndef FLOTILLA_LEARNER_TRAINING_LOOP_PARTS_H_
#define FLOTILLA_LEARNER_TRAINING_LOOP_PARTS_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/coordinator.pb.h"
#include "learner/actor/failed_rows.h"
#include "learner/actor/rollout_source.h"
#include "learner/algo/algorithm.h"
#include "learner/rollout/normalizer.h"
#include "learner/torch.h"
#include "learner/training/replay_saver.h"
#include "learner/training/run_state.h"
#include "learner/training/system_usage.h"
#include "services/coordinator/coordinator_client.h"

namespace flotilla {

// What this rank's env workers have come to, in this process's time.
struct EnvCounts {
  int64_t restarts = 0;
  int64_t last_incarnation = 0;  // the highest used
};

// What the training loop is made of on one rank. All is borrowed: Train makes
// the real ones, tests make fakes.
struct LoopParts {
  v1::RunConfig config;  // resolved; what holds by now is Changes::config
  // What the algorithm is told of such a configuration; null: the same.
  std::function<v1::RunConfig(const v1::RunConfig&)> learned;
  std::string member_id;
  torch::Device device{torch::kCPU};
  CoordinatorClient* coordinator = nullptr;
  Algorithm* algorithm = nullptr;
  Normalizer* normalizer = nullptr;
  RolloutSource* rollouts = nullptr;
  EpisodeWindow* episodes = nullptr;
  // Where no rank knows anything, as at the beginning or when all were lost: restores
  // the newest checkpoint, or, if there is none, begins, with what model.init_from has.
  // Null: with nothing.
  std::function<absl::Status(Progress*)> go_back;
  // Of a rank that knew nothing and has what its peers know by now: takes up its
  // newest replay that is not of later steps. Null: there is none.
  std::function<void(const Progress&)> take_up_replay;
  ReplaySaver* replay = nullptr;  // null: replay is not saved
  SelfPlay* self_play = nullptr;  // null: nobody else plays
  int agents = 1;                 // slots of one environment

  // The environment's own metrics of an episode, in the order of its EnvSpec.
  std::vector<std::string> episode_metrics;
  std::function<EnvCounts()> env_counts;
  std::function<std::vector<v1::EnvServerStatus>()> env_workers;
  const FailedRows* failed_rows = nullptr;  // null: none ever
  SystemUsage* usage = nullptr;             // null: nobody asks

  std::function<int()> first_signal;  // that this process got; 0: none
  std::stop_token stop;               // requested by that signal

  LiveState Live() const {
    return LiveState(algorithm, normalizer, episodes, self_play);
  }
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_LOOP_PARTS_H_
