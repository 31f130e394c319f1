#include "absl/strings/str_cat.h"
#include "services/algorithms/built_in.h"
#include "services/algorithms/minibatches.h"

namespace flotilla {
namespace {

class Impala : public AlgorithmTraits {
 public:
  std::string name() const override { return "impala"; }

  double Discount(const v1::RunConfig& config) const override {
    return config.impala().discount();
  }

  Collection CollectionOf(const v1::RunConfig& config) const override {
    return config.impala().deterministic_lag() ? Collection::kOneAhead
                                               : Collection::kFreeRunning;
  }

  UpdatePlan PlanOf(const v1::RunConfig& config) const override {
    return PlanOfMinibatches(config, config.impala().epochs(),
                             config.impala().minibatches());
  }

  // What actors did is scored anew first: with a recurrent model, whole sequences
  // and the step after them at once.
  double StepsAtOnce(const v1::RunConfig& config) const override {
    if (config.model().recurrent() != v1::NONE) {
      return static_cast<double>(config.rollout().length() + 1) *
             config.env().num_envs();
    }
    return MinibatchSteps(config, config.impala().minibatches());
  }

  int Trunks(const v1::RunConfig& config, bool may_split) const override {
    return PolicyAndValueTrunks(config, may_split);
  }

  void FindProblems(const v1::RunConfig& config,
                    std::vector<ConfigProblem>* problems) const override {
    RequireWholeMinibatches(config, "impala.minibatches",
                            config.impala().minibatches(), problems);
  }
};

}  // namespace

std::unique_ptr<const AlgorithmTraits> ImpalaTraits() {
  return std::make_unique<Impala>();
}

}  // namespace flotilla
