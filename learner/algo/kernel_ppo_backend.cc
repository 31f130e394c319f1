#include <span>

#include "learner/algo/ppo_backend.h"
#include "learner/device/host.h"
#include "learner/kernels/ppo_gradient.h"

namespace flotilla {
namespace {

class KernelPpoBackend : public PpoBackend {
 public:
  KernelPpoBackend(const Network* net, const PolicyLoss& loss)
      : net_(net), loss_(loss), gradient_(net->KernelShape().value()) {}

  void set_loss(const PolicyLoss& loss) override { loss_ = loss; }

  PpoSums Compute(const PpoBatch& batch) override {
    const Rollout& r = *batch.rollout;
    PpoSamples samples;
    samples.observations = Host<float>(r.observation.leaf(0));
    if (r.action.continuous.defined()) {
      samples.continuous_actions = Host<float>(r.action.continuous);
    } else {
      samples.discrete_actions = Host<int64_t>(r.action.discrete);
    }
    samples.log_prob = Host<float>(r.log_prob);
    samples.advantage = Host<float>(batch.advantage);
    samples.returns = Host<float>(batch.returns);
    samples.value = Host<float>(r.value);
    const std::span<const int32_t> rows(
        Host<int32_t>(batch.index), static_cast<size_t>(batch.index.numel()));

    PpoLoss loss;
    loss.clip_ratio = static_cast<float>(batch.clip_ratio);
    loss.value_clip = static_cast<float>(batch.value_clip);
    loss.entropy_cost = static_cast<float>(loss_.entropy_cost);
    loss.value_cost = static_cast<float>(loss_.value_cost);
    if (loss_.normalize_advantages && rows.size() > 1) {
      loss.advantage = NormalizeAdvantages(samples, rows);
    }
    return gradient_.Compute(Host<float>(net_->parameters()), samples, rows,
                             loss, /*accumulate=*/false,
                             Host<float>(net_->gradients()));
  }

  torch::Tensor ComputeLater(const PpoBatch&) override {
    LOG(FATAL) << "kernels run on the host";
  }

 private:
  const Network* const net_;
  PolicyLoss loss_;
  PpoGradient gradient_;
};

}  // namespace

std::unique_ptr<PpoBackend> MakeKernelPpoBackend(const Network* net,
                                                 const PolicyLoss& loss) {
  return std::make_unique<KernelPpoBackend>(net, loss);
}

}  // namespace flotilla
