#include "learner/algo/ppo_backend.h"

#include "gtest/gtest.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

struct Case {
  bool continuous;
  bool share_trunk;
  v1::Activation activation;
  double value_clip;
  bool normalize;
};

class PpoBackendTest : public testing::TestWithParam<Case> {};

TEST_P(PpoBackendTest, KernelsAndTorchGiveOneGradient) {
  const Case c = GetParam();
  Spaces spaces = VectorSpaces(5, 3);
  spaces.continuous = c.continuous;
  v1::ModelConfig model;
  model.set_share_trunk(c.share_trunk);
  model.set_activation(c.activation);
  v1::PpoConfig ppo;
  ppo.set_normalize_advantages(c.normalize);
  ActorCritic net = ActorCritic::Make(spaces, model, torch::kCPU).value();
  net.Initialize(2);
  torch::manual_seed(4);
  net.parameters().add_(0.05 * torch::randn_like(net.parameters()));

  const int64_t T = 16, B = 8;
  const Rollout rollout = RandomRollout(spaces, T, B);
  PpoBatch batch;
  batch.rollout = &rollout;
  batch.index = torch::randperm(T * B).narrow(0, 0, 50).to(torch::kInt32);
  batch.advantage = torch::randn({T, B});
  batch.returns = torch::randn({T, B});
  batch.clip_ratio = 0.2;
  batch.value_clip = c.value_clip;

  const PpoSums torch_sums = MakeTorchPpoBackend(&net, ppo)->Compute(batch);
  const torch::Tensor want = net.gradients().clone();
  const PpoSums kernel_sums = MakeKernelPpoBackend(&net, ppo)->Compute(batch);
  const torch::Tensor got = net.gradients();

  const double scale = want.abs().max().item<double>();
  EXPECT_GT(scale, 0);
  EXPECT_LT((got - want).abs().max().item<double>(), 1e-5 * scale + 1e-5);
  EXPECT_EQ(kernel_sums.samples, torch_sums.samples);
  EXPECT_NEAR(kernel_sums.policy_loss, torch_sums.policy_loss, 1e-3);
  EXPECT_NEAR(kernel_sums.value_loss, torch_sums.value_loss, 1e-3);
  EXPECT_NEAR(kernel_sums.entropy, torch_sums.entropy, 1e-3);
  EXPECT_NEAR(kernel_sums.old_approx_kl, torch_sums.old_approx_kl, 1e-3);
  EXPECT_NEAR(kernel_sums.approx_kl, torch_sums.approx_kl, 1e-3);
  EXPECT_EQ(kernel_sums.clipped, torch_sums.clipped);
}

INSTANTIATE_TEST_SUITE_P(
    Agents, PpoBackendTest,
    testing::Values(Case{false, false, v1::TANH, 0.2, true},
                    Case{false, false, v1::RELU, 0.0, true},
                    Case{false, true, v1::TANH, 0.2, false},
                    Case{true, false, v1::TANH, 0.2, true},
                    Case{true, true, v1::RELU, 0.0, false}));

TEST(PpoBackendTest, AnEmptyBatchLeavesZeros) {
  ActorCritic net =
      ActorCritic::Make(VectorSpaces(4, 2), v1::ModelConfig(), torch::kCPU)
          .value();
  net.Initialize(1);
  const Rollout rollout = RandomRollout(net.spaces(), 4, 2);
  PpoBatch batch;
  batch.rollout = &rollout;
  batch.index = torch::empty({0}, torch::kInt32);
  batch.advantage = batch.returns = torch::zeros({4, 2});
  for (auto make : {MakeTorchPpoBackend, MakeKernelPpoBackend}) {
    net.gradients().fill_(7);
    EXPECT_EQ(make(&net, v1::PpoConfig())->Compute(batch).samples, 0);
    EXPECT_EQ(net.gradients().abs().max().item<float>(), 0);
  }
}

}  // namespace
}  // namespace flotilla
