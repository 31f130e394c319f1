#include "learner/algo/ppo.h"

#include <utility>

#include "learner/algo/policy_gradient.h"
#include "learner/algo/segment_ppo.h"
#include "learner/kernels/gae.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

class Ppo : public PolicyGradient {
 public:
  Ppo(const v1::RunConfig& config, ActorCritic net)
      : PolicyGradient(config, config.ppo(), std::move(net)) {
    const int64_t T = config.rollout().length(), B = config.env().num_envs();
    advantage_ = torch::zeros({T, B});
    returns_ = torch::zeros({T, B});
  }

 private:
  Estimates Estimate(const Rollout& rollout, const UpdateContext&) override;

  torch::Tensor advantage_, returns_;  // [T, B] float32
};

Ppo::Estimates Ppo::Estimate(const Rollout& r, const UpdateContext&) {
  const torch::Tensor terminated = Terminated(r);
  GaeInput input;
  input.length = r.length;
  input.rows = r.rows;
  input.reward = r.reward.data_ptr<float>();
  input.value = r.value.data_ptr<float>();
  input.terminated = terminated.data_ptr<uint8_t>();
  input.truncated = r.truncated.data_ptr<uint8_t>();
  input.bootstrap_value = r.bootstrap_value.data_ptr<float>();
  input.valid = r.valid.data_ptr<uint8_t>();
  input.discount = static_cast<float>(loss_.discount());
  input.lambda = static_cast<float>(loss_.gae_lambda());
  GeneralizedAdvantages(input, advantage_.data_ptr<float>(),
                        returns_.data_ptr<float>());
  return {r, advantage_, returns_};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Algorithm>> MakePpo(const v1::RunConfig& config,
                                                   const Spaces& spaces,
                                                   torch::Device device) {
  ASSIGN_OR_RETURN(ActorCritic net,
                   ActorCritic::Make(spaces, config.model(), device));
  if (config.ppo().minibatch() == v1::SEGMENTS) {
    return MakeSegmentPpo(config, std::move(net));
  }
  return std::unique_ptr<Algorithm>(new Ppo(config, std::move(net)));
}

}  // namespace flotilla
