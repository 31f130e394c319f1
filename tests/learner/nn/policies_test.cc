#include "learner/nn/policies.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "learner/cuda/sampling.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

Spaces SpacesOf(bool continuous) {
  return continuous ? ContinuousSpaces(4, 3) : VectorSpaces(4, 3);
}

std::unique_ptr<Network> MakeNet(bool continuous) {
  auto net =
      MakeNetwork(SpacesOf(continuous), v1::ModelConfig(), torch::kCPU).value();
  net->Initialize(5);
  // Off the nearly uniform policy that initialisation gives.
  torch::manual_seed(9);
  net->parameters().add_(0.1 * torch::randn_like(net->parameters()));
  return net;
}

TEST(PoliciesTest, KernelDecisionsHaveTorchsProbabilitiesAndValues) {
  const auto net = MakeNet(/*continuous=*/false);
  const int64_t N = 33;
  torch::Tensor observation = torch::randn({N, 4});
  const void* leaf = observation.data_ptr();
  const auto policy =
      MakeNetworkPolicy(net.get(), SpacesOf(/*continuous=*/false));
  std::vector<int64_t> action(N);
  std::vector<float> log_prob(N), value(N);
  Draws draws(1);
  policy->Decide({.leaf = &leaf, .rows = N}, false, &draws,
                 {.discrete = action.data(),
                  .log_prob = log_prob.data(),
                  .value = value.data()});
  torch::NoGradGuard no_grad;
  const auto want = net->Forward({{observation}});
  const torch::Tensor log_softmax = torch::log_softmax(want.policy, 1);
  for (int64_t i = 0; i < N; ++i) {
    EXPECT_NEAR(log_prob[i], log_softmax[i][action[i]].item<float>(), 1e-5);
    EXPECT_NEAR(value[i], want.value[i].item<float>(), 1e-5);
  }
}

TEST(PoliciesTest, GreedyTakesTheLargestLogit) {
  const auto net = MakeNet(/*continuous=*/false);
  torch::Tensor observation = torch::randn({16, 4});
  const void* leaf = observation.data_ptr();
  const auto policy = MakeFrozenPolicy(*net, SpacesOf(/*continuous=*/false));
  std::vector<int64_t> action(16);
  std::vector<float> log_prob(16), value(16);
  Draws draws(1);
  policy->Decide({.leaf = &leaf, .rows = 16}, true, &draws,
                 {.discrete = action.data(),
                  .log_prob = log_prob.data(),
                  .value = value.data()});
  torch::NoGradGuard no_grad;
  const torch::Tensor want = net->Forward({{observation}}).policy.argmax(1);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(action[i], want[i].item<int64_t>());
}

TEST(PoliciesTest, AFrozenPolicyDoesNotSeeLaterWeights) {
  const auto net = MakeNet(/*continuous=*/false);
  const auto frozen = MakeFrozenPolicy(*net, SpacesOf(/*continuous=*/false));
  const torch::Tensor observation = torch::ones({1, 4});
  float before = 0, after = 0;
  const void* leaf = observation.data_ptr();
  const Observations seen{.leaf = &leaf, .rows = 1};
  frozen->Value(seen, &before);
  net->parameters().add_(1);
  frozen->Value(seen, &after);
  EXPECT_EQ(before, after);
}

// Of images in bfloat16: weights are converted when they change, not at each
// decision, and never late.
TEST(PoliciesTest, Bfloat16ActsWithTheNewestWeightsAsTheyAreTrained) {
  const Spaces spaces = FrameSpaces(36, 36, 6);
  auto net = MakeNetwork(spaces, v1::ModelConfig(), torch::kCPU).value();
  net->Initialize(5);
  net->set_bf16(true);
  torch::Tensor frames = torch::randint(0, 256, {3, 4, 36, 36}, torch::kUInt8);
  const void* leaf = frames.data_ptr();
  const Observations seen{.leaf = &leaf, .rows = 3};
  const auto live = MakeNetworkPolicy(net.get(), spaces);
  const auto value_of = [&](Policy* policy) {
    torch::Tensor value = torch::empty({3});
    policy->Value(seen, value.data_ptr<float>());
    return value;
  };
  // With gradients on nothing is taken that was converted before.
  const auto as_trained = [&] {
    return net->Forward({{frames}}).value.detach();
  };
  EXPECT_TRUE(torch::equal(value_of(live.get()), as_trained()));
  const auto frozen = MakeFrozenPolicy(*net, spaces);
  const torch::Tensor before = as_trained();
  {
    torch::NoGradGuard no_grad;
    net->parameters().mul_(1.5);
  }
  live->Refresh();
  EXPECT_FALSE(torch::equal(before, as_trained()));
  EXPECT_TRUE(torch::equal(value_of(live.get()), as_trained()));
  EXPECT_TRUE(torch::equal(value_of(frozen.get()), before));
  net->set_bf16(false);
  EXPECT_TRUE(torch::allclose(value_of(live.get()), as_trained(), 0.05, 0.02));
}

// An MLP named as one, and its copies; one that was only found to be one stays as it was.
TEST(PoliciesTest, AnMlpIsOfBfloat16WhereBothAreNamed) {
  const Spaces spaces = SpacesOf(/*continuous=*/false);
  v1::ModelConfig config;
  const auto found = MakeNetwork(spaces, config, torch::kCPU).value();
  found->set_bf16(true);
  EXPECT_FALSE(found->KernelShape()->bfloat16);

  config.set_encoder(v1::MLP);
  const auto net = MakeNetwork(spaces, config, torch::kCPU).value();
  net->Initialize(5);
  EXPECT_FALSE(net->KernelShape()->bfloat16);
  const torch::Tensor observation = torch::randn({64, 4});
  const void* leaf = observation.data_ptr();
  const auto values = [&](Policy* policy) {
    torch::Tensor value = torch::empty({64});
    policy->Value({.leaf = &leaf, .rows = 64}, value.data_ptr<float>());
    return value;
  };
  const torch::Tensor want = values(MakeNetworkPolicy(net.get(), spaces).get());
  net->set_bf16(true);
  EXPECT_TRUE(net->Clone()->KernelShape()->bfloat16);
  const torch::Tensor got = values(MakeNetworkPolicy(net.get(), spaces).get());
  EXPECT_FALSE(torch::equal(got, want));
  EXPECT_LT((got - want).abs().max().item<float>(),
            0.02 * want.abs().max().item<float>());
  EXPECT_TRUE(torch::equal(values(MakeFrozenPolicy(*net, spaces).get()), got));
}

TEST(PoliciesTest, ContinuousLogProbabilitiesAreTheDensitys) {
  const auto net = MakeNet(/*continuous=*/true);
  const int64_t N = 20, A = 3;
  torch::Tensor observation = torch::randn({N, 4});
  const void* leaf = observation.data_ptr();
  const auto policy =
      MakeNetworkPolicy(net.get(), SpacesOf(/*continuous=*/true));
  std::vector<float> action(N * A), log_prob(N), value(N);
  Draws draws(1);
  policy->Decide({.leaf = &leaf, .rows = N}, false, &draws,
                 {.continuous = action.data(),
                  .log_prob = log_prob.data(),
                  .value = value.data()});
  torch::NoGradGuard no_grad;
  const NetworkOutput said = net->Forward({{observation}});
  const torch::Tensor mean = said.policy, std = said.log_std.exp();
  for (int64_t i = 0; i < N; ++i) {
    double want = 0;
    for (int64_t a = 0; a < A; ++a) {
      const double s = std[a].item<double>();
      const double z = (action[i * A + a] - mean[i][a].item<double>()) / s;
      want += -0.5 * z * z - std::log(s) - 0.5 * std::log(2 * M_PI);
    }
    EXPECT_NEAR(log_prob[i], want, 1e-4);
  }
}

TEST(SamplingTest, FrequenciesFollowTheLogits) {
  const std::vector<float> logits = {0.0f, 1.0f, -1.0f};
  const int kDraws = 30000;
  std::vector<int> count(3);
  Draws draws(3);
  float log_prob;
  for (int i = 0; i < kDraws; ++i) {
    ++count[PickValue(logits.data(), 3, nullptr, draws.Uniform(), &log_prob)];
  }
  const double total = std::exp(0.0) + std::exp(1.0) + std::exp(-1.0);
  for (int a = 0; a < 3; ++a) {
    const double p = std::exp(logits[a]) / total;
    EXPECT_NEAR(count[a] / static_cast<double>(kDraws), p,
                5 * std::sqrt(p * (1 - p) / kDraws));
  }
}

}  // namespace
}  // namespace flotilla
