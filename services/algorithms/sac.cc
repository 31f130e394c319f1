#include <cmath>

#include "absl/strings/str_cat.h"
#include "services/algorithms/built_in.h"
#include "services/algorithms/replay_traits.h"

namespace flotilla {
namespace {

class Sac : public ReplayTraits {
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

  // The policy's, two critics' and their targets'.
  int Trunks(const v1::RunConfig&, bool) const override { return 5; }

 private:
  Sizes SizesOf(const v1::RunConfig& config) const override {
    return {.batch = config.sac().batch_size(),
            .capacity = config.sac().replay_capacity(),
            .learning_starts = config.sac().learning_starts()};
  }
};

}  // namespace

std::unique_ptr<const AlgorithmTraits> SacTraits() {
  return std::make_unique<Sac>();
}

}  // namespace flotilla
