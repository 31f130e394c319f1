#include <iterator>
#include <span>
#include <vector>

#include "learner/algo/gradient_shards.h"
#include "learner/algo/ppo_backend.h"
#include "learner/device/host.h"
#include "learner/kernels/ppo_gradient.h"

namespace flotilla {
namespace {

class KernelPpoBackend : public PpoBackend {
 public:
  KernelPpoBackend(const Network* net, int mask, const PolicyLoss& loss)
      : net_(net),
        mask_(mask),
        loss_(loss),
        shape_(net->KernelShape().value()) {}

  void set_loss(const PolicyLoss& loss) override { loss_ = loss; }

  PpoSums Compute(const PpoBatch& batch) override {
    const Rollout& r = *batch.rollout;
    PpoSamples samples;
    samples.observations = Host<float>(r.observation.leaf(0));
    if (r.action.continuous.defined()) {
      samples.continuous_actions = Host<float>(r.action.continuous);
    } else {
      samples.discrete_actions = Host<int64_t>(r.action.discrete);
      if (mask_ >= 0) samples.mask = Host<uint8_t>(r.observation.leaf(mask_));
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
    const int64_t shards =
        GradientShards::CountOf(batch.index.numel(), net_->num_parameters());
    while (std::ssize(kernels_) < shards) kernels_.emplace_back(shape_);
    const float* const parameters = Host<float>(net_->parameters());
    const auto compute = [&](int64_t shard, int64_t first, int64_t count,
                             float* gradient) {
      return kernels_[shard].Compute(parameters, samples,
                                     rows.subspan(first, count), loss,
                                     /*accumulate=*/false, gradient);
    };
    return shards_.Run<PpoSums>(batch.index.numel(), net_->gradients(),
                                compute);
  }

  torch::Tensor ComputeLater(const PpoBatch&) override {
    LOG(FATAL) << "kernels run on the host";
  }

 private:
  const Network* const net_;
  const int mask_;  // of Spaces.observation; below 0: none
  PolicyLoss loss_;
  const MlpShape shape_;
  std::vector<PpoGradient> kernels_;  // each shard's
  GradientShards shards_;
};

}  // namespace

std::unique_ptr<PpoBackend> MakeKernelPpoBackend(const Network* net,
                                                 const Spaces& spaces,
                                                 const PolicyLoss& loss) {
  return std::make_unique<KernelPpoBackend>(net, spaces.mask, loss);
}

}  // namespace flotilla
