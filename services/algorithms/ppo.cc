#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/algorithms/built_in.h"
#include "services/algorithms/minibatches.h"

namespace flotilla {
namespace {

using Problems = std::vector<ConfigProblem>;

void FindSegmentProblems(const v1::RunConfig& config, Problems* problems) {
  const v1::PpoConfig& ppo = config.ppo();
  const int64_t rows = config.env().num_envs();
  if (ppo.minibatches() >= 1 && rows >= 1) {
    Require(rows % ppo.minibatches() == 0, "ppo.minibatches",
            absl::StrCat("is ", ppo.minibatches(),
                         ", which does not divide env.num_envs = ", rows,
                         "; ppo.minibatch SEGMENTS keeps environments whole; ",
                         NearbyDivisors(rows, ppo.minibatches())),
            problems);
  }
  Require(!ppo.normalize_advantages_over_ranks(),
          "ppo.normalize_advantages_over_ranks",
          "is true, but ppo.minibatch SEGMENTS normalises each minibatch; use "
          "STEPS, or false",
          problems);
}

class Ppo : public AlgorithmTraits {
 public:
  std::string name() const override { return "ppo"; }

  double Discount(const v1::RunConfig& config) const override {
    return config.ppo().discount();
  }

  bool BootstrapsTruncation(const v1::RunConfig& config) const override {
    return config.ppo().bootstrap_truncation();
  }

  UpdatePlan PlanOf(const v1::RunConfig& config) const override {
    return PlanOfMinibatches(config, config.ppo().epochs(),
                             config.ppo().minibatches());
  }

  double StepsAtOnce(const v1::RunConfig& config) const override {
    const double some = MinibatchSteps(config, config.ppo().minibatches());
    const double most = static_cast<double>(config.ppo().max_minibatch());
    return most > 0 ? std::min(some, most) : some;
  }

  int Trunks(const v1::RunConfig& config, bool may_split) const override {
    return PolicyAndValueTrunks(config, may_split);
  }

  void FindProblems(const v1::RunConfig& config,
                    Problems* problems) const override {
    const v1::PpoConfig& ppo = config.ppo();
    RequireWholeMinibatches(config, "ppo.minibatches", ppo.minibatches(),
                            problems);
    Require(
        !ppo.normalize_advantages_over_ranks() || ppo.normalize_advantages(),
        "ppo.normalize_advantages_over_ranks",
        "is true, but ppo.normalize_advantages is false: nothing is "
        "normalised; set both or neither",
        problems);
    Require(config.model().recurrent() == v1::NONE ||
                ppo.max_minibatch() <= 0 ||
                ppo.max_minibatch() >= config.rollout().length(),
            "ppo.max_minibatch",
            absl::StrCat("is ", ppo.max_minibatch(),
                         ", less than one sequence of rollout.length = ",
                         config.rollout().length(),
                         " steps, which a recurrent model keeps together; use "
                         "at least that, or 0"),
            problems);
    if (ppo.minibatch() == v1::SEGMENTS) FindSegmentProblems(config, problems);
  }
};

}  // namespace

std::unique_ptr<const AlgorithmTraits> PpoTraits() {
  return std::make_unique<Ppo>();
}

}  // namespace flotilla
