#include "absl/strings/str_cat.h"
#include "services/algorithms/built_in.h"
#include "services/algorithms/replay_traits.h"
#include "services/base/config.h"

namespace flotilla {
namespace {

class Dqn : public ReplayTraits {
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

  void FindProblems(const v1::RunConfig& config,
                    std::vector<ConfigProblem>* problems) const override {
    ReplayTraits::FindProblems(config, problems);
    const v1::DqnConfig& dqn = config.dqn();
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

 private:
  Sizes SizesOf(const v1::RunConfig& config) const override {
    return {.batch = config.dqn().batch_size(),
            .capacity = config.dqn().replay_capacity(),
            .learning_starts = config.dqn().learning_starts()};
  }
};

}  // namespace

std::unique_ptr<const AlgorithmTraits> DqnTraits() {
  return std::make_unique<Dqn>();
}

}  // namespace flotilla
