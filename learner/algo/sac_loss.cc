#include "learner/algo/sac_loss.h"

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
