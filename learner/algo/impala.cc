#include "learner/algo/impala.h"

#include <limits>
#include <utility>

#include "learner/algo/policy_gradient.h"
#include "learner/device/host.h"
#include "learner/kernels/vtrace.h"
#include "learner/nn/action_scorer.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

PolicyLoss Loss(const v1::ImpalaConfig& impala) {
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
      : PolicyGradient(config, Loss(config.impala()), spaces, std::move(net)),
        scorer_(net_.get(), spaces) {
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
  input.reward = Host<float>(r.reward);
  input.value = Host<float>(value_);
  input.log_prob = Host<float>(log_prob_);
  input.actor_log_prob = Host<float>(r.log_prob);
  input.terminated = Host<uint8_t>(r.terminated);
  input.truncated = Host<uint8_t>(r.truncated);
  input.bootstrap_value = Host<float>(r.bootstrap_value);
  input.valid = Host<uint8_t>(r.valid);
  input.discount = static_cast<float>(impala.discount());
  input.lambda = static_cast<float>(impala.lambda());
  input.rho_clip = static_cast<float>(impala.rho_clip());
  input.c_clip = static_cast<float>(impala.c_clip());
  input.pg_rho_clip = static_cast<float>(impala.pg_rho_clip());
  Vtrace(input, Host<float>(target_), Host<float>(advantage_));
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
