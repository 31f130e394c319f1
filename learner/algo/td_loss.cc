#include "learner/algo/td_loss.h"

namespace flotilla {

TdSums ComputeTdGradient(const QNetwork& net, const QNetwork& target,
                         const ReplayBatch& batch,
                         const v1::DqnConfig& config) {
  const auto give = [&](const torch::Tensor& t) {
    return t.to(net.device(), /*non_blocking=*/true);
  };
  torch::Tensor y;  // [N]
  {
    torch::NoGradGuard no_grad;
    const torch::Tensor next = give(batch.next_observation);
    const torch::Tensor next_q = target.Forward(next);
    const torch::Tensor best =
        (config.double_q() ? net.Forward(next) : next_q).argmax(1, true);
    y = give(batch.n_step_return) +
        give(batch.discount) * next_q.gather(1, best).squeeze(1);
  }
  net.Flat().gradients.zero_();
  const torch::Tensor q = net.Forward(give(batch.observation))
                              .gather(1, give(batch.action).unsqueeze(1))
                              .squeeze(1);
  const torch::Tensor each =
      config.huber() ? torch::smooth_l1_loss(q, y, torch::Reduction::None)
                     : torch::mse_loss(q, y, torch::Reduction::None);
  const torch::Tensor loss = (give(batch.weight) * each).sum();
  loss.backward();

  torch::NoGradGuard no_grad;
  // One transfer for everything.
  const torch::Tensor all =
      torch::cat({loss.detach().unsqueeze(0), q.detach().sum().unsqueeze(0),
                  q.detach() - y})
          .to(torch::kCPU);
  TdSums sums;
  sums.loss = all[0].item<double>();
  sums.q = all[1].item<double>();
  sums.error = all.narrow(0, 2, q.numel());
  return sums;
}

}  // namespace flotilla
