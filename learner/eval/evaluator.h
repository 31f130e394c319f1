#ifndef FLOTILLA_LEARNER_EVAL_EVALUATOR_H_
#define FLOTILLA_LEARNER_EVAL_EVALUATOR_H_

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/coordinator.pb.h"
#include "flotilla/v1/episodes.pb.h"
#include "learner/actor/env_pool.h"
#include "learner/actor/opponents.h"
#include "learner/nn/policy.h"
#include "learner/rollout/normalizer.h"
#include "services/base/run_folder.h"
#include "services/env/spaces.h"

namespace flotilla {

// One evaluated episode, as the environment scores it (no clipping).
struct EvaluatedEpisode {
  double raw_return = 0;
  int64_t length = 0;
  std::map<std::string, double> metrics = {};  // the task's own: "success"
};

// What a policy was trained in.
struct TrainedEnv {
  v1::EnvSpec spec;
  Spaces spaces;
  int opponent_slots = 0;  // of each environment, that it did not play for
};

// Plays `episodes` episodes with `policy` on env workers of its own. Each row
// plays a fixed quota, all of it started here, so that short episodes are not
// counted more often than long ones. Blocks until they are done.
// `options.env.num_envs` rows at most, or one environment's. Where there are
// `opponents` (may be null) and an environment has several agents, they play the
// slots that were theirs in training, and those episodes are not counted.
// Observations are scaled by `normalizer` as it is. `round` is part of the seeds.
// `games`, unless null, gets all that was played so, to be seen again.
// Errors: kCancelled when `stop` is requested; kResourceExhausted, with the newest
// reason, if too many rows fail (env.max_failed_share); kInvalidArgument if the
// environment has other spaces than `trained`; those of EnvPool.
absl::StatusOr<std::vector<EvaluatedEpisode>> Evaluate(
    EnvWorkerOptions options, const TrainedEnv& trained, Policy* policy,
    const Opponents* opponents, const Normalizer& normalizer, int episodes,
    bool greedy, uint64_t round, std::stop_token stop,
    v1::RecordedGames* games = nullptr);

// Env workers for evaluation: evaluation.num_envs rows, told evaluation.kwargs,
// and whole games where training ends episodes early (a lost life).
EnvWorkerOptions EvaluationWorkers(const v1::RunConfig& config);

// Writes the games of evaluation `round` into the run's folder, and drops those of
// all but the `newest` rounds. A failure is logged.
void KeepGames(const RunFolder& run, int64_t round, int newest,
               const v1::RecordedGames& games);

v1::Evaluation Summarize(const std::vector<EvaluatedEpisode>& episodes);

// Evaluations beside training: in a thread, one at a time, never inside a
// collective.
//
// Not thread-safe: the trainer of rank 0 owns it.
class Evaluator {
 public:
  // How a frozen policy is played in round `round`, `global_step` of the run: see
  // Evaluate.
  using PlayRound = std::function<absl::StatusOr<std::vector<EvaluatedEpisode>>(
      Policy* policy, const Opponents* opponents, const Normalizer& normalizer,
      uint64_t round, int64_t global_step, std::stop_token stop)>;

  // `options` are the training workers'; see EvaluationWorkers. Games go into the
  // run's folder, if episodes.record.
  Evaluator(const v1::RunConfig& config, const EnvWorkerOptions& options,
            const TrainedEnv& trained, const RunFolder& run);
  Evaluator(const v1::EvaluationConfig& config, PlayRound play)
      : config_(config), play_(std::move(play)) {}
  // Cancels what runs and waits for it.
  ~Evaluator();

  bool busy() const { return running_.valid(); }

  // Evaluates so from the next Begin on. Not while busy.
  void Reconfigure(const v1::EvaluationConfig& config) { config_ = config; }

  // Begins evaluating `policy`, frozen after `update`, against `opponents` that
  // nobody else plays (may be null). Not while busy.
  void Begin(std::unique_ptr<Policy> policy,
             std::shared_ptr<const Opponents> opponents,
             const Normalizer& normalizer, int64_t round, int64_t update,
             int64_t global_step);

  // The finished evaluation, once; nullopt while none is. Never blocks.
  std::optional<absl::StatusOr<v1::Evaluation>> Take();

  // Blocks until the running evaluation has finished, for `timeout` at most.
  void WaitFor(absl::Duration timeout);

 private:
  v1::EvaluationConfig config_;  // the thread's while busy
  const PlayRound play_;         // called on the round's thread
  std::stop_source stop_;
  std::future<absl::StatusOr<v1::Evaluation>> running_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_EVAL_EVALUATOR_H_
