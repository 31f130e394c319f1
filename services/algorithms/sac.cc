#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/algorithms/built_in.h"
#include "services/base/config.h"

namespace flotilla {
namespace {

class Sac : public AlgorithmTraits {
 public:
  std::string name() const override { return "sac"; }

  bool TakesDiscreteActions() const override { return false; }

  // It draws within bounds, and scales by them.
  std::string BoundsProblem(std::span<const float> low,
                            std::span<const float> high) const override {
    for (size_t a = 0; a < low.size(); ++a) {
      // Bounds that are the whole of float32 are none.
      if (!std::isfinite(low[a]) || !std::isfinite(high[a]) ||
          !std::isfinite(high[a] - low[a])) {
        return absl::StrCat("sac needs actions with finite bounds, and value ",
                            a, " of this environment's is from ", low[a],
                            " to ", high[a]);
      }
      if (low[a] >= high[a]) {
        return absl::StrCat(
            "sac needs actions with room between their bounds, and value ", a,
            " of this environment's is always ", low[a]);
      }
    }
    return "";
  }

  double Discount(const v1::RunConfig& config) const override {
    return config.sac().discount();
  }

  UpdatePlan PlanOf(const v1::RunConfig& config) const override {
    const v1::SacConfig& sac = config.sac();
    return {.minibatch = sac.batch_size(),
            .gradient_steps = sac.updates_per_rollout() > 0
                                  ? sac.updates_per_rollout()
                                  : int64_t{config.rollout().length()} *
                                        config.env().num_envs()};
  }

  double StepsAtOnce(const v1::RunConfig& config) const override {
    return config.sac().batch_size();
  }

  // The policy's, two critics' and their targets'.
  int Trunks(const v1::RunConfig&, bool) const override { return 5; }

  // Beside observations, 12 bytes a step and two nodes of the sum tree.
  ReplayPlan ReplayOf(const v1::RunConfig& config) const override {
    return {.capacity = config.sac().replay_capacity(), .step_bytes = 12 + 32};
  }

  std::vector<std::string> GlobalSizes() const override {
    return {"batch_size", "replay_capacity"};
  }

  void FindProblems(const v1::RunConfig& config,
                    std::vector<ConfigProblem>* problems) const override {
    const v1::SacConfig& sac = config.sac();
    const v1::ModelConfig& model = config.model();
    Require(model.recurrent() == v1::NONE, "model.recurrent",
            absl::StrCat("is ", v1::RecurrentCell_Name(model.recurrent()),
                         "; sac has no recurrent form: choose ppo, or NONE"),
            problems);
    const std::string own = OwnNetworkField(model);
    Require(own.empty(), own,
            "is set, but sac's policy and critics are networks of their own; "
            "choose ppo, or leave it out",
            problems);
    const std::pair<std::string, bool> scales[] = {
        {"model.normalize_observations", model.normalize_observations()},
        {"model.normalize_rewards", model.normalize_rewards()}};
    for (const auto& [path, on] : scales) {
      Require(!on, path,
              "is true, but replay would mix what was scaled at different "
              "times; sac needs false",
              problems);
    }
    Require(sac.replay_capacity() >= sac.batch_size(), "sac.replay_capacity",
            absl::StrCat("is ", sac.replay_capacity(),
                         "; it must hold at least one batch, sac.batch_size = ",
                         sac.batch_size()),
            problems);
  }
};

}  // namespace

std::unique_ptr<const AlgorithmTraits> SacTraits() {
  return std::make_unique<Sac>();
}

}  // namespace flotilla
