#include <span>

#include "learner/algo/ppo_backend.h"
#include "learner/kernels/ppo_gradient.h"
#include "learner/nn/mlp_shape_of.h"

namespace flotilla {
namespace {

class KernelPpoBackend : public PpoBackend {
 public:
  KernelPpoBackend(ActorCritic* net, const v1::PpoConfig& config)
      : net_(net), config_(config), gradient_(MlpShapeOf(*net).value()) {}

  PpoSums Compute(const PpoBatch& batch) override {
    const Rollout& r = *batch.rollout;
    PpoSamples samples;
    samples.observations = r.observation.data_ptr<float>();
    if (net_->spaces().continuous) {
      samples.continuous_actions = r.action.data_ptr<float>();
    } else {
      samples.discrete_actions = r.action.data_ptr<int64_t>();
    }
    samples.log_prob = r.log_prob.data_ptr<float>();
    samples.advantage = batch.advantage.data_ptr<float>();
    samples.returns = batch.returns.data_ptr<float>();
    samples.value = r.value.data_ptr<float>();
    const std::span<const int32_t> rows(
        batch.index.data_ptr<int32_t>(),
        static_cast<size_t>(batch.index.numel()));

    PpoLoss loss;
    loss.clip_ratio = static_cast<float>(batch.clip_ratio);
    loss.value_clip = static_cast<float>(batch.value_clip);
    loss.entropy_cost = static_cast<float>(config_.entropy_cost());
    loss.value_cost = static_cast<float>(config_.value_cost());
    if (config_.normalize_advantages() && rows.size() > 1) {
      loss.advantage = NormalizeAdvantages(samples, rows);
    }
    return gradient_.Compute(net_->parameters().data_ptr<float>(), samples,
                             rows, loss, /*accumulate=*/false,
                             net_->gradients().data_ptr<float>());
  }

 private:
  ActorCritic* const net_;
  const v1::PpoConfig config_;
  PpoGradient gradient_;
};

}  // namespace

std::unique_ptr<PpoBackend> MakeKernelPpoBackend(ActorCritic* net,
                                                 const v1::PpoConfig& config) {
  return std::make_unique<KernelPpoBackend>(net, config);
}

}  // namespace flotilla
