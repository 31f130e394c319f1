#include "learner/algo/sac_loss.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "gtest/gtest.h"
#include "tests/testing/bounded_spaces.h"

namespace flotilla {
namespace {

constexpr int64_t kN = 500, kA = 2;
constexpr double kLow[kA] = {-2, 0}, kHigh[kA] = {2, 1};

class SacLossTest : public testing::Test {
 protected:
  SacLossTest()
      : spaces_(BoundedSpaces(4, {-2, 0}, {2, 1})),
        gaussian_(SquashedGaussian::Make(spaces_.action, torch::kCPU).value()),
        actor_(SacActor::Make(spaces_, Model(), torch::kCPU).value()),
        critics_(TwinCritics::Make(spaces_, Model(), torch::kCPU).value()),
        targets_(critics_.Clone()),
        log_alpha_(1, torch::kCPU) {
    actor_.Initialize(1);
    critics_.Initialize(2);
    targets_.Initialize(3);
    log_alpha_.Take("log_alpha", {1});
    log_alpha_.parameters.fill_(-0.7);
    torch::manual_seed(4);
    batch_.observation = {{torch::randn({kN, 4})}};
    batch_.next_observation = {{torch::randn({kN, 4})}};
    batch_.action.continuous = torch::rand({kN, kA}) * 2 - 1;
    batch_.n_step_return = torch::randn({kN}) * 2;
    batch_.discount = (torch::rand({kN}) < 0.8).to(torch::kFloat32) * 0.9;
    batch_.weight = torch::ones({kN});
    noise_ = torch::randn({kN, kA});
    for (const FlatParameters* flat : All()) flat->gradients.fill_(7);
  }

  static v1::ModelConfig Model() {
    v1::ModelConfig config;
    config.add_hidden(64);
    config.add_hidden(64);
    config.set_activation(v1::RELU);
    return config;
  }

  SacNetworks Nets() const {
    return {actor_, critics_, targets_, gaussian_, log_alpha_.parameters};
  }
  double Temperature(double log_prob, double samples, double target) const {
    return ComputeTemperatureGradient(
               log_alpha_, torch::full({1}, log_prob, torch::kFloat32), samples,
               target)
        .item<double>();
  }
  std::vector<const FlatParameters*> All() const {
    return {&actor_.Flat(), &critics_.Flat(), &targets_.Flat(), &log_alpha_};
  }

  // All networks' gradients but one's are as they were.
  void ExpectOnly(const FlatParameters& changed) const {
    for (const FlatParameters* flat : All()) {
      EXPECT_EQ((flat->gradients == 7).all().item<bool>(), flat != &changed);
    }
  }

  // One row's sample, in float64 and from the paper: appendix C.
  struct Row {
    double u[kA], action[kA], deviation[kA], log_prob = 0;
  };
  Row Draw(const SacActor::Output& output, int64_t i) const {
    Row row;
    for (int64_t j = 0; j < kA; ++j) {
      const double eps = noise_[i][j].item<double>();
      row.deviation[j] = std::exp(output.log_std[i][j].item<double>());
      row.u[j] = output.mean[i][j].item<double>() + row.deviation[j] * eps;
      const double t = std::tanh(row.u[j]), k = (kHigh[j] - kLow[j]) / 2;
      row.action[j] = (kHigh[j] + kLow[j]) / 2 + k * t;
      row.log_prob += -0.5 * eps * eps - std::log(row.deviation[j]) -
                      0.5 * std::log(2 * std::numbers::pi) -
                      std::log(k * (1 - t * t));
    }
    return row;
  }
  torch::Tensor ActionsOf(const SacActor::Output& output) const {
    const torch::Tensor action = torch::zeros({kN, kA});
    for (int64_t i = 0; i < kN; ++i) {
      const Row row = Draw(output, i);
      for (int64_t j = 0; j < kA; ++j) action[i][j] = row.action[j];
    }
    return action;
  }

  // Along the gradient itself, where the slope is its length.
  static void ExpectFiniteDifferences(const FlatParameters& flat,
                                      const std::function<double()>& loss) {
    const torch::Tensor gradient = flat.gradients.clone();
    const double length = gradient.norm().item<double>(), h = 2e-3;
    ASSERT_GT(length, 0.1);
    const torch::Tensor step = gradient * (h / length);
    torch::Tensor at = flat.parameters;
    at.add_(step);
    const double above = loss();
    at.sub_(2 * step);
    const double below = loss();
    at.add_(step);
    EXPECT_NEAR((above - below) / (2 * h), length, 0.02 * length);
  }

  const Spaces spaces_;
  const SquashedGaussian gaussian_;
  SacActor actor_;
  TwinCritics critics_, targets_;
  FlatParameters log_alpha_;
  ReplayBatch batch_;
  torch::Tensor noise_;
};

// By Torch's operations, or by kernels on this many threads.
struct Case {
  bool kernels;
  int threads;
};

class SacGradientTest : public SacLossTest,
                        public testing::WithParamInterface<Case> {
 protected:
  SacGradientTest() : kernels_(SacKernels::For(actor_, critics_)) {
    at::set_num_threads(GetParam().threads);
  }
  ~SacGradientTest() override { at::set_num_threads(1); }

  torch::Tensor CriticGradient() {
    return GetParam().kernels ? kernels_->CriticGradient(Nets(), batch_, noise_)
                              : ComputeCriticGradient(Nets(), batch_, noise_);
  }
  torch::Tensor PolicyGradient() {
    return GetParam().kernels ? kernels_->PolicyGradient(Nets(), batch_, noise_)
                              : ComputePolicyGradient(Nets(), batch_, noise_);
  }

 private:
  const std::unique_ptr<SacKernels> kernels_;
};

// Gradients by Q(s, a) are worked out by hand, and only a network's own are
// autograd's; so below.
TEST_P(SacGradientTest, CriticsAreTheSlowLoops) {
  const double alpha = std::exp(log_alpha_.parameters.item<double>());
  SacActor::Output next;
  torch::Tensor t1, t2;
  {
    torch::NoGradGuard no_grad;
    next = actor_.Forward(batch_.next_observation);
    const auto q = targets_.Forward(batch_.next_observation, ActionsOf(next));
    t1 = q[0];
    t2 = q[1];
  }
  const auto [q1, q2] =
      critics_.Forward(batch_.observation, batch_.action.continuous);
  double loss = 0, q_sum = 0;
  int smaller = 0;
  const torch::Tensor by_q = torch::zeros({2, kN});
  for (int64_t i = 0; i < kN; ++i) {
    const double a = t1[i].item<double>(), b = t2[i].item<double>();
    smaller += a < b;
    const double y = batch_.n_step_return[i].item<double>() +
                     batch_.discount[i].item<double>() *
                         (std::min(a, b) - alpha * Draw(next, i).log_prob);
    const torch::Tensor* const q[2] = {&q1, &q2};
    for (int k = 0; k < 2; ++k) {
      const double value = (*q[k])[i].item<double>();
      loss += (value - y) * (value - y);
      by_q[k][i] = 2 * (value - y);
      q_sum += value / 2;
    }
  }
  ASSERT_GT(smaller, 3);
  ASSERT_LT(smaller, kN - 3);
  critics_.Flat().gradients.zero_();
  torch::autograd::backward({q1, q2}, {by_q[0], by_q[1]});
  const torch::Tensor want = critics_.Flat().gradients.clone();
  critics_.Flat().gradients.fill_(7);  // what was there before does not matter

  const torch::Tensor got = CriticGradient();
  EXPECT_NEAR(got[0].item<double>(), loss, 1e-4 * loss);
  EXPECT_NEAR(got[1].item<double>(), q_sum, 1e-4);
  const double scale = want.abs().max().item<double>();
  EXPECT_GT(scale, 0.1);
  EXPECT_LT((critics_.Flat().gradients - want).abs().max().item<double>(),
            1e-5 * scale);
  ExpectOnly(critics_.Flat());
}

TEST_P(SacGradientTest, ThePolicyIsTheSlowLoops) {
  const double alpha = std::exp(log_alpha_.parameters.item<double>());
  const SacActor::Output output = actor_.Forward(batch_.observation);
  torch::Tensor action;
  {
    torch::NoGradGuard no_grad;
    action = ActionsOf(output);
  }
  action.set_requires_grad(true);
  const auto q = critics_.Forward(batch_.observation, action);
  const torch::Tensor by_action =
      torch::autograd::grad({torch::min(q[0], q[1]).sum()}, {action})[0];
  double loss = 0, log_prob = 0;
  const torch::Tensor by_mean = torch::zeros({kN, kA}),
                      by_log_std = torch::zeros({kN, kA});
  for (int64_t i = 0; i < kN; ++i) {
    const Row row = Draw(output, i);
    loss += alpha * row.log_prob -
            std::min(q[0][i].item<double>(), q[1][i].item<double>());
    log_prob += row.log_prob;
    for (int64_t j = 0; j < kA; ++j) {
      const double t = std::tanh(row.u[j]), k = (kHigh[j] - kLow[j]) / 2;
      const double by_u =
          alpha * 2 * t - by_action[i][j].item<double>() * k * (1 - t * t);
      by_mean[i][j] = by_u;
      by_log_std[i][j] =
          by_u * row.deviation[j] * noise_[i][j].item<double>() - alpha;
    }
  }
  actor_.Flat().gradients.zero_();
  torch::autograd::backward({output.mean, output.log_std},
                            {by_mean, by_log_std});
  const torch::Tensor want = actor_.Flat().gradients.clone();
  actor_.Flat().gradients.fill_(7);

  const torch::Tensor got = PolicyGradient();
  EXPECT_NEAR(got[0].item<double>(), loss, 1e-4 * std::abs(loss));
  EXPECT_NEAR(got[1].item<double>(), log_prob, 1e-4 * std::abs(log_prob));
  const double scale = want.abs().max().item<double>();
  EXPECT_GT(scale, 0.1);
  EXPECT_LT((actor_.Flat().gradients - want).abs().max().item<double>(),
            1e-5 * scale);
  ExpectOnly(actor_.Flat());
}

TEST_F(SacLossTest, TheTemperatureIsTheSlowLoop) {
  const double target = -1.5;
  const std::vector<double> log_probs = {0.5, -2, 1.25, 3, -0.5};
  double sum = 0, want = 0;
  for (const double log_prob : log_probs) {
    want += -std::exp(-0.7) * (log_prob + target);
    sum += log_prob;
  }
  EXPECT_NEAR(Temperature(sum, 5, target), want, 1e-5);
  EXPECT_NEAR(log_alpha_.gradients.item<double>(), want, 1e-5);
  ExpectOnly(log_alpha_);
  ExpectFiniteDifferences(log_alpha_, [&] {
    const torch::Tensor kept = log_alpha_.gradients.clone();
    const double loss = Temperature(sum, 5, target);
    log_alpha_.gradients.copy_(kept);
    return loss;
  });
}

// More random than asked for, it falls; less, it rises.
TEST_F(SacLossTest, TheTemperatureGoesTowardsTheTargetEntropy) {
  Temperature(/*log_prob=*/-10, 5, /*target=*/1);
  EXPECT_GT(log_alpha_.gradients.item<double>(), 0);
  Temperature(/*log_prob=*/-10, 5, /*target=*/3);
  EXPECT_LT(log_alpha_.gradients.item<double>(), 0);
  Temperature(0, 0, 3);
  EXPECT_EQ(log_alpha_.gradients.item<double>(), 0);
}

TEST_P(SacGradientTest, GradientsAreFiniteDifferences) {
  CriticGradient();
  ExpectFiniteDifferences(critics_.Flat(),
                          [&] { return CriticGradient()[0].item<double>(); });
  PolicyGradient();
  ExpectFiniteDifferences(actor_.Flat(),
                          [&] { return PolicyGradient()[0].item<double>(); });
}

TEST_F(SacLossTest, ThreadsShareTheKernels) {
  const auto gradients = [&](int threads) {
    at::set_num_threads(threads);
    const auto kernels = SacKernels::For(actor_, critics_);
    kernels->CriticGradient(Nets(), batch_, noise_);
    kernels->PolicyGradient(Nets(), batch_, noise_);
    at::set_num_threads(1);
    return torch::cat({critics_.Flat().gradients, actor_.Flat().gradients});
  };
  const torch::Tensor alone = gradients(1), shared = gradients(2);
  EXPECT_FALSE(torch::equal(shared, alone));  // by rounding
  EXPECT_TRUE(torch::equal(gradients(2), shared));
}

INSTANTIATE_TEST_SUITE_P(Ways, SacGradientTest,
                         testing::Values(Case{.kernels = false, .threads = 1},
                                         Case{.kernels = true, .threads = 1},
                                         Case{.kernels = true, .threads = 2}));

}  // namespace
}  // namespace flotilla
