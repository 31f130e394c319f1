#ifndef FLOTILLA_TESTS_LEARNER_TRAINING_FAKES_H_
#define FLOTILLA_TESTS_LEARNER_TRAINING_FAKES_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "learner/actor/rollout_source.h"
#include "learner/algo/algorithm.h"
#include "learner/eval/evaluator.h"
#include "learner/nn/policy.h"
#include "learner/training/leader.h"
#include "learner/training/loop_parts.h"
#include "services/base/config.h"
#include "tests/testing/fake_coordinator_client.h"
#include "tests/testing/spaces.h"

namespace flotilla {

inline constexpr int64_t kFakeSteps = 8;  // environment steps of a rollout

inline v1::RunConfig FakeConfig() {
  v1::RunConfig config;
  config.mutable_ppo();
  config.mutable_env()->set_num_envs(4);
  config.mutable_rollout()->set_length(2);
  config.mutable_metrics()->set_tensorboard(false);
  return Resolved(config);
}

// Its policy knows the weight it was frozen with, and cannot play.
struct FakePolicy : Policy {
  explicit FakePolicy(float weight) : weight(weight) {}
  void Decide(const Observations&, bool, Draws*,
              const DecisionOutput&) override {}
  void Value(const Observations&, float*) override {}
  const float weight;
};

// An algorithm of one weight. An update adds what all ranks' rollouts hold, so
// the weight tells which updates, of whom, have been made.
class FakeAlgorithm : public Algorithm {
 public:
  absl::StatusOr<std::vector<Metric>> Update(
      const Rollout& rollout, const UpdateContext& context) override {
    epochs.push_back(config_.ppo().epochs());
    torch::Tensor sum = rollout.reward.sum().to(torch::kFloat32).reshape({1});
    // As in a real update: the weights change before a peer can be lost.
    weight_.add_(1000);
    const absl::Status reduced = context.collective->AllReduceSum(sum);
    if (!reduced.ok()) return reduced;
    if (fails_at == context.update) return failure;
    weight_.sub_(1000).add_(sum);
    return std::vector<Metric>{
        {"losses/fake", rollout.reward.sum().item<double>()}};
  }
  absl::Status Reconfigure(const v1::RunConfig& config) override {
    if (config.ppo().epochs() > most_epochs) {
      return absl::UnimplementedError("too many epochs");
    }
    config_ = config;
    return absl::OkStatus();
  }
  Policy* live_policy() override { return nullptr; }
  void BeforeCollecting(int64_t global_step) override { step_ = global_step; }
  std::unique_ptr<Policy> Freeze() const override {
    if (frozen_at != nullptr) frozen_at->push_back(step_);
    return std::make_unique<FakePolicy>(weight());
  }
  std::vector<NamedTensor> Weights() override { return {{"weight", weight_}}; }
  std::vector<NamedTensor> State() override {
    if (on_state) on_state();
    return {};
  }

  float weight() const { return weight_.item<float>(); }

  std::vector<int> epochs;  // that it was to go through, by update
  std::vector<int64_t>* frozen_at = nullptr;  // by which step it explored
  std::function<void()> on_state;             // asked for
  int most_epochs = 100;
  int64_t fails_at = -1;
  absl::Status failure = absl::UnavailableError("injected: a peer is lost");

 private:
  v1::RunConfig config_;
  int64_t step_ = 0;
  torch::Tensor weight_ = torch::zeros({1});
};

// Rollouts out of nothing: `kFakeSteps` rewards of 1 + rank, and an episode.
class FakeRollouts : public RolloutSource {
 public:
  void Begin(int rank, std::stop_token fence) override {
    rank_ = rank;
    fence_ = fence;
  }

  absl::StatusOr<Experience> Next(int64_t update, const Preemption*) override {
    if (on_next) on_next(update);
    if (fence_.stop_requested()) return absl::CancelledError("fenced");
    rollout_.reward = torch::full({kFakeSteps}, 1.0f + rank_);
    rollout_.valid_steps = kFakeSteps;
    Experience experience;
    experience.rollout = &rollout_;
    experience.env_steps = kFakeSteps;
    experience.policy_lag = rank_;
    experience.stats = stats;
    experience.stats.seconds = 1;
    return experience;
  }

  void End() override {}
  bool deciding() const override { return decides; }

  std::function<void(int64_t update)> on_next;
  std::atomic<bool> decides = false;
  CollectStats stats;

 private:
  int rank_ = 0;
  std::stop_token fence_;
  Rollout rollout_;
};

// A rank's parts, all fake but the configuration.
struct FakeLearner {
  explicit FakeLearner(v1::RunConfig config = FakeConfig()) {
    parts.config = std::move(config);
    parts.member_id = "learner/0/0";
    parts.algorithm = &algorithm;
    parts.normalizer = &normalizer;
    parts.rollouts = &rollouts;
    parts.episodes = &episodes;
    parts.go_back = [this](Progress* progress) {
      return go_back ? go_back(progress) : absl::OkStatus();
    };
    parts.env_counts = [this] { return env_counts; };
    parts.env_workers = [] { return std::vector<v1::EnvServerStatus>(); };
    parts.first_signal = [this] { return signal; };
    parts.stop = signalled.get_token();
  }

  // Rank 0's options. An evaluation's returns are the weight it is of.
  LeaderOptions LeaderIn(const std::string& run_folder) {
    return {.run_folder = run_folder,
            .run_config = parts.config,
            .make_evaluator = [this] {
              return std::make_unique<Evaluator>(
                  parts.config.evaluation(),
                  [this](Policy* policy, const Opponents*, const Normalizer&,
                         uint64_t round, int64_t, std::stop_token stop) {
                    const float weight =
                        static_cast<FakePolicy*>(policy)->weight;
                    return evaluate(weight, round, stop);
                  });
            }};
  }

  FakeAlgorithm algorithm;
  Normalizer normalizer;
  FakeRollouts rollouts;
  EpisodeWindow episodes{100, 0};
  EnvCounts env_counts;
  std::function<absl::Status(Progress*)>
      go_back;  // null: there is no checkpoint
  // Runs on the evaluation's thread.
  std::function<absl::StatusOr<std::vector<EvaluatedEpisode>>(
      float weight, uint64_t round, std::stop_token stop)>
      evaluate = [](float weight, uint64_t, std::stop_token) {
        return std::vector<EvaluatedEpisode>{
            {.raw_return = weight, .length = 1}};
      };
  int signal = 0;
  std::stop_source signalled;
  LoopParts parts;
};

inline std::map<std::string, double> ByName(const std::vector<Metric>& line) {
  std::map<std::string, double> values;
  for (const Metric& metric : line) values[metric.name] = metric.value;
  return values;
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LEARNER_TRAINING_FAKES_H_
