#include "learner/algo/impala.h"

#include <limits>
#include <utility>

#include "learner/algo/policy_gradient.h"
#include "learner/kernels/vtrace.h"
#include "learner/nn/action_scorer.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

v1::PpoConfig Loss(const v1::ImpalaConfig& impala) {
  v1::PpoConfig loss;
  loss.set_clip_ratio(impala.clip_ratio() > 0
                          ? impala.clip_ratio()
                          : std::numeric_limits<double>::infinity());
  loss.set_value_clip(0);
  loss.set_entropy_cost(impala.entropy_cost());
  loss.set_value_cost(impala.value_cost());
  loss.set_epochs(impala.epochs());
  loss.set_minibatches(impala.minibatches());
  loss.set_normalize_advantages(false);
  return loss;
}

class Impala : public PolicyGradient {
 public:
  Impala(const v1::RunConfig& config, ActorCritic net)
      : PolicyGradient(config, Loss(config.impala()), std::move(net)),
        scorer_(&net_) {
    const int64_t T = config.rollout().length(), B = config.env().num_envs();
    log_prob_ = torch::zeros({T, B});
    value_ = torch::zeros({T + 1, B});
    target_ = torch::zeros({T, B});
    advantage_ = torch::zeros({T, B});
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
  VtraceInput input;
  input.length = r.length;
  input.rows = r.rows;
  input.reward = r.reward.data_ptr<float>();
  input.value = value_.data_ptr<float>();
  input.log_prob = log_prob_.data_ptr<float>();
  input.actor_log_prob = r.log_prob.data_ptr<float>();
  input.terminated = r.terminated.data_ptr<uint8_t>();
  input.truncated = r.truncated.data_ptr<uint8_t>();
  input.bootstrap_value = r.bootstrap_value.data_ptr<float>();
  input.valid = r.valid.data_ptr<uint8_t>();
  input.discount = static_cast<float>(impala.discount());
  input.lambda = static_cast<float>(impala.lambda());
  input.rho_clip = static_cast<float>(impala.rho_clip());
  input.c_clip = static_cast<float>(impala.c_clip());
  input.pg_rho_clip = static_cast<float>(impala.pg_rho_clip());
  Vtrace(input, target_.data_ptr<float>(), advantage_.data_ptr<float>());
  Rollout now = r;
  now.log_prob = log_prob_;
  now.value = value_;
  return Estimates{now, advantage_, target_};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Algorithm>> MakeImpala(
    const v1::RunConfig& config, const Spaces& spaces, torch::Device device) {
  if (config.model().recurrent() != v1::NONE) {
    return absl::UnimplementedError(
        "impala has no recurrent form; use ppo, or --set model.recurrent=NONE");
  }
  ASSIGN_OR_RETURN(ActorCritic net,
                   ActorCritic::Make(spaces, config.model(), device));
  return std::unique_ptr<Algorithm>(new Impala(config, std::move(net)));
}

}  // namespace flotilla
