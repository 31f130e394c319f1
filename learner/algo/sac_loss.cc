#include "learner/algo/sac_loss.h"

#include <array>
#include <cmath>
#include <iterator>

#include "learner/device/host.h"

namespace flotilla {
namespace {

SquashedGaussian::Drawn Draw(const SacNetworks& nets, const Batch& observation,
                             const torch::Tensor& noise) {
  const SacActor::Output output = nets.actor.Forward(observation);
  return nets.gaussian.Draw(output.mean, output.log_std, noise);
}

// The gradient of `loss` in these parameters; those of what else it depends on
// are not even computed.
void BackwardInto(const FlatParameters& flat, const torch::Tensor& loss) {
  flat.gradients.zero_();
  loss.backward(/*gradient=*/{}, /*retain_graph=*/false,
                /*create_graph=*/false, flat.leaf);
}

// [2] float32, where what is too large is infinite.
torch::Tensor FloatsOf(const std::array<double, 2>& sums) {
  return torch::tensor(
      {static_cast<float>(sums[0]), static_cast<float>(sums[1])});
}

// `rows` of them from `first` on, of D observations and A values. What the policy's
// gradient does not read stays null.
SacSamples Narrow(SacSamples samples, int64_t first, int64_t rows, int64_t D,
                  int64_t A) {
  samples.rows = rows;
  const auto skip = [&](const float** of, int64_t width) {
    if (*of != nullptr) *of += first * width;
  };
  skip(&samples.observations, D);
  skip(&samples.actions, A);
  skip(&samples.n_step_return, 1);
  skip(&samples.discount, 1);
  skip(&samples.next_observations, D);
  skip(&samples.noise, A);
  return samples;
}

}  // namespace

torch::Tensor ComputeCriticGradient(const SacNetworks& nets,
                                    const ReplayBatch& batch,
                                    const torch::Tensor& noise) {
  torch::Tensor y;  // [N]
  {
    torch::NoGradGuard no_grad;
    const SquashedGaussian::Drawn next =
        Draw(nets, batch.next_observation, noise);
    const auto [q1, q2] =
        nets.targets.Forward(batch.next_observation, next.action);
    y = batch.n_step_return +
        batch.discount *
            (torch::min(q1, q2) - nets.log_alpha.exp() * next.log_prob);
  }
  const auto [q1, q2] =
      nets.critics.Forward(batch.observation, batch.action.continuous);
  const torch::Tensor loss = torch::mse_loss(q1, y, torch::Reduction::Sum) +
                             torch::mse_loss(q2, y, torch::Reduction::Sum);
  BackwardInto(nets.critics.Flat(), loss);
  torch::NoGradGuard no_grad;
  return torch::stack({loss.detach(), 0.5 * (q1.sum() + q2.sum())});
}

torch::Tensor ComputePolicyGradient(const SacNetworks& nets,
                                    const ReplayBatch& batch,
                                    const torch::Tensor& noise) {
  const SquashedGaussian::Drawn drawn = Draw(nets, batch.observation, noise);
  const auto [q1, q2] = nets.critics.Forward(batch.observation, drawn.action);
  const torch::Tensor alpha = nets.log_alpha.detach().exp();
  const torch::Tensor loss =
      (alpha * drawn.log_prob - torch::min(q1, q2)).sum();
  BackwardInto(nets.actor.Flat(), loss);
  torch::NoGradGuard no_grad;
  return torch::stack({loss.detach(), drawn.log_prob.sum()});
}

std::unique_ptr<SacKernels> SacKernels::For(const SacActor& actor,
                                            const TwinCritics& critics) {
  const std::optional<MlpShape> policy = actor.KernelShape();
  const std::optional<MlpShape> q = critics.KernelShape();
  if (!policy.has_value() || !q.has_value()) return nullptr;
  return std::unique_ptr<SacKernels>(new SacKernels(*policy, *q));
}

SacSums SacKernels::Compute(Gradient of, const SacNetworks& nets,
                            const SacSamples& samples,
                            const FlatParameters& into) {
  const int64_t shards = GradientShards::CountOf(samples.rows, into.size());
  while (std::ssize(kernels_) < shards) kernels_.emplace_back(actor_, critics_);
  const SacGradient::Parameters parameters = {
      .actor = Host<float>(nets.actor.Flat().parameters),
      .critics = Host<float>(nets.critics.Flat().parameters),
      .targets = Host<float>(nets.targets.Flat().parameters)};
  const ActionRange range = nets.gaussian.range();
  const float alpha = std::exp(*Host<float>(nets.log_alpha));
  const auto compute = [&](int64_t shard, int64_t first, int64_t rows,
                           float* gradient) {
    return (kernels_[shard].*of)(
        parameters,
        Narrow(samples, first, rows, actor_.observations, actor_.actions),
        range, alpha, gradient);
  };
  return shards_.Run<SacSums>(samples.rows, into.gradients, compute);
}

torch::Tensor SacKernels::CriticGradient(const SacNetworks& nets,
                                         const ReplayBatch& batch,
                                         const torch::Tensor& noise) {
  const SacSums sums =
      Compute(&SacGradient::Critics, nets,
              {.rows = noise.size(0),
               .observations = Host<float>(batch.observation.leaf[0]),
               .actions = Host<float>(batch.action.continuous),
               .n_step_return = Host<float>(batch.n_step_return),
               .discount = Host<float>(batch.discount),
               .next_observations = Host<float>(batch.next_observation.leaf[0]),
               .noise = Host<float>(noise)},
              nets.critics.Flat());
  return FloatsOf({sums.loss, sums.q});
}

torch::Tensor SacKernels::PolicyGradient(const SacNetworks& nets,
                                         const ReplayBatch& batch,
                                         const torch::Tensor& noise) {
  SacSamples samples;
  samples.rows = noise.size(0);
  samples.observations = Host<float>(batch.observation.leaf[0]);
  samples.noise = Host<float>(noise);
  const SacSums sums =
      Compute(&SacGradient::Policy, nets, samples, nets.actor.Flat());
  return FloatsOf({sums.loss, sums.log_prob});
}

torch::Tensor ComputeTemperatureGradient(const FlatParameters& log_alpha,
                                         const torch::Tensor& log_prob,
                                         double samples,
                                         double target_entropy) {
  torch::NoGradGuard no_grad;
  // Alpha is its own derivative by its logarithm.
  const torch::Tensor loss =
      log_alpha.parameters.exp() *
      -(log_prob.to(torch::kFloat64) + samples * target_entropy)
           .to(torch::kFloat32);
  log_alpha.gradients.copy_(loss);
  return loss;
}

}  // namespace flotilla
