#include "learner/algo/impala.h"

#include <limits>
#include <utility>

#include "learner/algo/advantages.h"
#include "learner/algo/policy_gradient.h"
#include "learner/nn/action_scorer.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

PolicyLoss Loss(const v1::RunConfig& config) {
  const v1::ImpalaConfig& impala = config.impala();
  PolicyLoss loss;
  loss.clip_ratio = impala.clip_ratio() > 0
                        ? impala.clip_ratio()
                        : std::numeric_limits<double>::infinity();
  loss.entropy_cost = impala.entropy_cost();
  loss.value_cost = impala.value_cost();
  loss.epochs = impala.epochs();
  loss.minibatches = impala.minibatches();
  return loss;
}

class Impala : public PolicyGradient {
 public:
  Impala(const v1::RunConfig& config, const Spaces& spaces,
         std::unique_ptr<Network> net)
      : PolicyGradient(config, Loss, spaces, std::move(net)),
        scorer_(net_.get(), spaces) {
    const int64_t T = config.rollout().length(), B = config.env().num_envs();
    log_prob_ = torch::zeros({T, B}, memory());
    value_ = torch::zeros({T + 1, B}, memory());
    target_ = torch::zeros({T, B}, memory());
    advantage_ = torch::zeros({T, B}, memory());
  }

 private:
  absl::StatusOr<Estimates> Estimate(const Rollout& rollout,
                                     const UpdateContext&) override;

  ActionScorer scorer_;
  torch::Tensor log_prob_, target_, advantage_;  // [T, B] float32
  torch::Tensor value_;                          // [T + 1, B] float32
};

absl::StatusOr<Impala::Estimates> Impala::Estimate(const Rollout& r,
                                                   const UpdateContext&) {
  scorer_.Score(r, &log_prob_, &value_);
  const v1::ImpalaConfig& impala = config_.impala();
  EstimateVtrace(r, value_, log_prob_, r.terminated,
                 {.discount = impala.discount(),
                  .lambda = impala.lambda(),
                  .rho_clip = impala.rho_clip(),
                  .c_clip = impala.c_clip(),
                  .pg_rho_clip = impala.pg_rho_clip()},
                 &target_, &advantage_);
  Rollout now = r;
  now.log_prob = log_prob_;
  now.value = value_;
  return Estimates{now, advantage_, target_};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Algorithm>> MakeImpala(
    const v1::RunConfig& config, const Spaces& spaces, torch::Device device) {
  ASSIGN_OR_RETURN(std::unique_ptr<Network> net,
                   MakeNetwork(spaces, config.model(), device));
  return std::unique_ptr<Algorithm>(new Impala(config, spaces, std::move(net)));
}

}  // namespace flotilla
