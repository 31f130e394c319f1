#include "learner/nn/q_policy.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

constexpr int64_t kRows = 2000, kActions = 5;

// Kernels decide for those with ReLU.
QNetwork MakeNet(v1::Activation activation = v1::TANH) {
  v1::ModelConfig config;
  config.set_activation(activation);
  QNetwork net =
      QNetwork::Make(VectorSpaces(3, kActions), config, true, torch::kCPU)
          .value();
  net.Initialize(1);
  return net;
}

std::vector<int64_t> Decide(Policy* policy, const torch::Tensor& seen,
                            bool greedy) {
  std::vector<int64_t> action(kRows);
  std::vector<float> log_prob(kRows), value(kRows);
  Draws draws(4);
  const void* leaf = seen.data_ptr();
  policy->Decide({.leaf = &leaf, .rows = kRows}, greedy, &draws,
                 {.discrete = action.data(),
                  .log_prob = log_prob.data(),
                  .value = value.data()});
  return action;
}

// How many rows do not do what the network says.
int64_t Others(const QNetwork& net, const torch::Tensor& seen,
               const std::vector<int64_t>& action) {
  torch::NoGradGuard no_grad;
  const torch::Tensor best = net.Forward({{seen}}).argmax(1);
  int64_t others = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    others += action[r] != best[r].item<int64_t>();
  }
  return others;
}

// DI-engine draws once a batch: all rows explore or none does. Here half of
// them do, so 4 in 10 take another of the 5 actions.
TEST(QPolicyTest, EachRowExploresForItself) {
  const QNetwork net = MakeNet();
  const torch::Tensor seen = torch::randn({kRows, 3});
  QPolicy policy(&net);
  policy.set_epsilon(0.5);
  const double others = Others(net, seen, Decide(&policy, seen, false));
  EXPECT_NEAR(others / kRows, 0.4, 0.055);  // 5 deviations
}

TEST(QPolicyTest, GreedyNeverExplores) {
  torch::manual_seed(3);  // Torch and our kernels may round a tie differently
  for (const v1::Activation activation : {v1::TANH, v1::RELU}) {
    const QNetwork net = MakeNet(activation);
    EXPECT_EQ(net.KernelShape().has_value(), activation == v1::RELU);
    const torch::Tensor seen = torch::randn({kRows, 3});
    QPolicy policy(&net);
    policy.set_epsilon(1);
    EXPECT_EQ(Others(net, seen, Decide(&policy, seen, true)), 0);
    policy.set_epsilon(0);
    EXPECT_EQ(Others(net, seen, Decide(&policy, seen, false)), 0);
  }
}

class FrozenQPolicyTest : public testing::TestWithParam<v1::Activation> {};

TEST_P(FrozenQPolicyTest, KeepsItsWeightsAndEpsilon) {
  const QNetwork net = MakeNet(GetParam());
  const torch::Tensor seen = torch::randn({kRows, 3});
  QPolicy live(&net);
  live.set_epsilon(0.3);
  const auto frozen = MakeFrozenQPolicy(net, live.epsilon());
  const std::vector<int64_t> before = Decide(&live, seen, false);
  torch::manual_seed(5);
  net.Flat().parameters.normal_();
  live.Unsettle();
  live.set_epsilon(0);
  EXPECT_EQ(Decide(frozen.get(), seen, false), before);
  EXPECT_NE(Decide(&live, seen, false), before);
}

INSTANTIATE_TEST_SUITE_P(Activations, FrozenQPolicyTest,
                         testing::Values(v1::TANH, v1::RELU));

}  // namespace
}  // namespace flotilla
