#include <utility>

#include "absl/strings/str_cat.h"
#include "services/algorithms/built_in.h"
#include "services/base/config.h"

namespace flotilla {
namespace {

class Dqn : public AlgorithmTraits {
 public:
  std::string name() const override { return "dqn"; }

  bool TakesContinuousActions() const override { return false; }

  double Discount(const v1::RunConfig& config) const override {
    return config.dqn().discount();
  }

  UpdatePlan PlanOf(const v1::RunConfig& config) const override {
    return {.minibatch = config.dqn().batch_size(),
            .gradient_steps = config.dqn().updates_per_rollout()};
  }

  double StepsAtOnce(const v1::RunConfig& config) const override {
    return config.dqn().batch_size();
  }

  // Beside observations, 12 bytes a step and two nodes of the sum tree.
  ReplayPlan ReplayOf(const v1::RunConfig& config) const override {
    return {.capacity = config.dqn().replay_capacity(), .step_bytes = 12 + 32};
  }

  std::vector<std::string> GlobalSizes() const override {
    return {"batch_size", "replay_capacity"};
  }

  void FindProblems(const v1::RunConfig& config,
                    std::vector<ConfigProblem>* problems) const override {
    const v1::DqnConfig& dqn = config.dqn();
    const v1::ModelConfig& model = config.model();
    Require(model.recurrent() == v1::NONE, "model.recurrent",
            absl::StrCat("is ", v1::RecurrentCell_Name(model.recurrent()),
                         "; dqn has no recurrent form: choose ppo, or NONE"),
            problems);
    const std::string own = OwnNetworkField(model);
    Require(own.empty(), own,
            "is set, but dqn builds its own network; choose ppo or impala, or "
            "leave it out",
            problems);
    const std::pair<std::string, bool> scales[] = {
        {"model.normalize_observations", model.normalize_observations()},
        {"model.normalize_rewards", model.normalize_rewards()}};
    for (const auto& [path, on] : scales) {
      Require(!on, path,
              "is true, but replay would mix what was scaled at different "
              "times; dqn needs false",
              problems);
    }
    Require(dqn.replay_capacity() >= dqn.batch_size(), "dqn.replay_capacity",
            absl::StrCat("is ", dqn.replay_capacity(),
                         "; it must hold at least one batch, dqn.batch_size = ",
                         dqn.batch_size()),
            problems);
    const int64_t window = int64_t{dqn.n_step()} * config.env().num_envs();
    Require(
        dqn.replay_capacity() >= window, "dqn.replay_capacity",
        absl::StrCat("is ", dqn.replay_capacity(),
                     "; it must hold dqn.n_step steps of each environment, ",
                     dqn.n_step(), " * env.num_envs = ", window),
        problems);
    Require(
        dqn.epsilon_end() <= dqn.epsilon_start(), "dqn.epsilon_end",
        absl::StrCat("is ", dqn.epsilon_end(),
                     "; exploration must not grow from dqn.epsilon_start = ",
                     dqn.epsilon_start()),
        problems);
  }
};

}  // namespace

std::unique_ptr<const AlgorithmTraits> DqnTraits() {
  return std::make_unique<Dqn>();
}

}  // namespace flotilla
