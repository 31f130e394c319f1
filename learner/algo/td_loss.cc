#include "learner/algo/td_loss.h"

#include <iterator>
#include <vector>

#include "learner/device/host.h"
#include "learner/device/transfer.h"
#include "learner/nn/action_head.h"
#include "learner/nn/fresh_gradients.h"

namespace flotilla {
namespace {

// The first of the largest Qs that are allowed [A], or of all if none is, or if that
// is null.
int64_t BestOf(const float* q, const uint8_t* allowed, int64_t A) {
  int64_t best = -1;
  for (int64_t a = 0; a < A; ++a) {
    if (allowed != nullptr && allowed[a] == 0) continue;
    if (best < 0 || q[a] > q[best]) best = a;
  }
  return best < 0 ? BestOf(q, nullptr, A) : best;
}

}  // namespace

torch::Tensor ComputeTdGradientThere(const QNetwork& net,
                                     const QNetwork& target,
                                     const ReplayBatch& batch,
                                     const v1::DqnConfig& config,
                                     GradientFactors* factors) {
  const Spaces& spaces = net.spaces();
  const std::vector<int64_t>& choices = spaces.action.num_values;
  // [N]: the mean over choices of what `pick` makes of each one's part.
  const auto over_choices = [&](const auto& pick) {
    torch::Tensor sum;
    int64_t first = 0;
    for (size_t i = 0; i < choices.size(); ++i) {
      const torch::Tensor one =
          pick(first, choices[i], static_cast<int64_t>(i));
      sum = sum.defined() ? sum + one : one;
      first += choices[i];
    }
    return choices.size() == 1 ? sum
                               : sum / static_cast<double>(choices.size());
  };
  const Batch& next = batch.next_observation;
  const int64_t N = next.size();
  // By one pass over the weights, where there are many.
  torch::Tensor both;  // [2 N, L]: what is learned, then what is judged by
  if (config.double_q() && net.LearnsFromSome()) {
    both = net.Forward(batch.observation.Append(next), /*learned=*/N);
  }
  torch::Tensor y;  // [N]
  {
    torch::NoGradGuard no_grad;
    const torch::Tensor next_q = target.Forward(next);
    torch::Tensor judged = both.defined()      ? both.narrow(0, N, N)
                           : config.double_q() ? net.Forward(next)
                                               : next_q;
    const torch::Tensor value = over_choices([&](int64_t first, int64_t n,
                                                 int64_t) {
      torch::Tensor q = judged.narrow(1, first, n);
      if (spaces.mask >= 0) {
        q = ForbidValues(q, next.leaf[spaces.mask].narrow(1, first, n));
      }
      return next_q.narrow(1, first, n).gather(1, q.argmax(1, true)).squeeze(1);
    });
    y = batch.n_step_return + batch.discount * value;
  }
  const torch::Tensor all_q =
      both.defined() ? both.narrow(0, 0, N) : net.Forward(batch.observation);
  const torch::Tensor q =
      over_choices([&](int64_t first, int64_t n, int64_t i) {
        return all_q.narrow(1, first, n)
            .gather(1, batch.action.discrete.narrow(1, i, 1))
            .squeeze(1);
      });
  const torch::Tensor each =
      config.huber() ? torch::smooth_l1_loss(q, y, torch::Reduction::None)
                     : torch::mse_loss(q, y, torch::Reduction::None);
  const torch::Tensor loss = (batch.weight * each).sum();
  {
    const FreshGradients fresh(net.Flat(), factors);
    loss.backward();
  }

  torch::NoGradGuard no_grad;
  return torch::cat({loss.detach().unsqueeze(0), q.detach().sum().unsqueeze(0),
                     q.detach() - y});
}

TdSums ComputeTdGradient(const QNetwork& net, const QNetwork& target,
                         const ReplayBatch& batch, const v1::DqnConfig& config,
                         GradientFactors* factors) {
  // One transfer for everything.
  const torch::Tensor all =
      ToHost(ComputeTdGradientThere(net, target, batch, config, factors));
  TdSums sums;
  sums.loss = all[0].item<double>();
  sums.q = all[1].item<double>();
  sums.error = all.narrow(0, 2, all.numel() - 2);
  return sums;
}

void TdKernels::SetTarget(const QNetwork& target) {
  const FlatParameters& flat = target.Flat();
  const float* parameters = Host<float>(flat.parameters);
  target_.assign(parameters, parameters + flat.size());
  for (Shard& shard : kernels_) shard.has_target = false;
}

TdSums TdKernels::Compute(const QNetwork& net, const ReplayBatch& batch,
                          const v1::DqnConfig& config) {
  const int64_t N = batch.n_step_return.numel();
  const int64_t D = shape_.observations, A = shape_.actions;
  const int64_t shards = GradientShards::CountOf(N, net.Flat().size());
  while (std::ssize(kernels_) < shards) {
    kernels_.push_back({.net = MlpQ(shape_, /*training=*/true),
                        .target = MlpQ(shape_, /*training=*/false)});
  }
  const int mask = net.spaces().mask;
  const Batch& after = batch.next_observation;
  const float* parameters = Host<float>(net.Flat().parameters);
  const float* now = Host<float>(batch.observation.leaf[0]);
  const float* next = Host<float>(after.leaf[0]);
  const uint8_t* allowed = mask < 0 ? nullptr : Host<uint8_t>(after.leaf[mask]);
  const float* gained = Host<float>(batch.n_step_return);
  const float* discount = Host<float>(batch.discount);
  const int64_t* actions = Host<int64_t>(batch.action.discrete);
  const float* weights = Host<float>(batch.weight);
  TdSums sums;
  sums.error = torch::empty({N});
  float* error = Host<float>(sums.error);
  const auto compute = [&](int64_t index, int64_t first, int64_t rows,
                           float* gradient) {
    Shard& shard = kernels_[index];
    shard.net.SetParameters(parameters);
    if (!shard.has_target) shard.target.SetParameters(target_.data());
    shard.has_target = true;
    shard.next.resize(rows * A);
    shard.target.Values(next + first * D, rows, shard.next.data());
    if (config.double_q()) {
      shard.judged.resize(rows * A);
      shard.net.Values(next + first * D, rows, shard.judged.data());
    }
    const std::vector<float>& judged =
        config.double_q() ? shard.judged : shard.next;
    shard.y.resize(rows);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t n = first + i;
      const int64_t best =
          BestOf(judged.data() + i * A,
                 allowed == nullptr ? nullptr : allowed + n * A, A);
      shard.y[i] = gained[n] + discount[n] * shard.next[i * A + best];
    }
    return shard.net.Gradient({.rows = rows,
                               .observations = now + first * D,
                               .actions = actions + first,
                               .targets = shard.y.data(),
                               .weights = weights + first},
                              config.huber(), error + first, gradient);
  };
  const QSums done = shards_.Run<QSums>(N, net.Flat().gradients, compute);
  sums.loss = done.loss;
  sums.q = done.q;
  return sums;
}

}  // namespace flotilla
