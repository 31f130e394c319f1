#include "learner/algo/ppo_backend.h"

#include "gtest/gtest.h"
#include "learner/algo/minibatches.h"
#include "learner/algo/ppo.h"
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
  bool masked = false;  // and of two choices
};

class PpoBackendTest : public testing::TestWithParam<Case> {};

TEST_P(PpoBackendTest, KernelsAndTorchGiveOneGradient) {
  const Case c = GetParam();
  const Spaces spaces = c.masked       ? MaskedSpaces(5, {3, 4})
                        : c.continuous ? ContinuousSpaces(5, 3)
                                       : VectorSpaces(5, 3);
  v1::ModelConfig model;
  model.set_share_trunk(c.share_trunk);
  model.set_activation(c.activation);
  v1::PpoConfig ppo;
  ppo.set_normalize_advantages(c.normalize);
  const auto net = MakeNetwork(spaces, model, torch::kCPU).value();
  net->Initialize(2);
  torch::manual_seed(4);
  net->parameters().add_(0.05 * torch::randn_like(net->parameters()));

  const int64_t T = 16, B = 8;
  const Rollout rollout = RandomRollout(spaces, T, B);
  PpoBatch batch;
  batch.rollout = &rollout;
  batch.index = torch::randperm(T * B).narrow(0, 0, 50).to(torch::kInt32);
  batch.advantage = torch::randn({T, B});
  batch.returns = torch::randn({T, B});
  batch.clip_ratio = 0.2;
  batch.value_clip = c.value_clip;

  const PolicyLoss loss = PpoLossOf(ppo);
  const PpoSums torch_sums =
      MakeTorchPpoBackend(net.get(), spaces, loss)->Compute(batch);
  const torch::Tensor want = net->gradients().clone();
  const double scale = want.abs().max().item<double>();
  EXPECT_GT(scale, 0);
  const auto expect_alike = [&](PpoBackend* backend) {
    const PpoSums sums = backend->Compute(batch);
    const torch::Tensor got = net->gradients();
    EXPECT_LT((got - want).abs().max().item<double>(), 1e-5 * scale + 1e-5);
    EXPECT_EQ(sums.samples, torch_sums.samples);
    EXPECT_NEAR(sums.policy_loss, torch_sums.policy_loss, 1e-3);
    EXPECT_NEAR(sums.value_loss, torch_sums.value_loss, 1e-3);
    EXPECT_NEAR(sums.entropy, torch_sums.entropy, 1e-3);
    EXPECT_NEAR(sums.old_approx_kl, torch_sums.old_approx_kl, 1e-3);
    EXPECT_NEAR(sums.approx_kl, torch_sums.approx_kl, 1e-3);
    EXPECT_EQ(sums.clipped, torch_sums.clipped);
  };
  expect_alike(MakeKernelPpoBackend(net.get(), spaces, loss).get());
  expect_alike(MakeFusedPpoBackend(net.get(), spaces, loss).get());
}

INSTANTIATE_TEST_SUITE_P(
    Agents, PpoBackendTest,
    testing::Values(Case{false, false, v1::TANH, 0.2, true},
                    Case{false, false, v1::RELU, 0.0, true},
                    Case{false, true, v1::TANH, 0.2, false},
                    Case{true, false, v1::TANH, 0.2, true},
                    Case{true, true, v1::RELU, 0.0, false},
                    Case{false, true, v1::RELU, 0.2, true, /*masked=*/true}));

TEST(PpoBackendTest, ThreadsShareTheKernels) {
  const Spaces spaces = VectorSpaces(5, 3);
  const auto net = MakeNetwork(spaces, v1::ModelConfig(), torch::kCPU).value();
  net->Initialize(2);
  torch::manual_seed(4);
  for (const int64_t rows : {1, 119, 240, 500, 1021}) {
    const Rollout rollout = RandomRollout(spaces, rows, 1);
    PpoBatch batch;
    batch.rollout = &rollout;
    batch.index = torch::randperm(rows).to(torch::kInt32);
    batch.advantage = torch::randn({rows, 1});
    batch.returns = torch::randn({rows, 1});
    batch.clip_ratio = batch.value_clip = 0.2;
    const PolicyLoss loss = PpoLossOf(v1::PpoConfig());
    torch::Tensor gradient;
    PpoSums sums;
    for (const int threads : {1, 2, 3}) {
      at::set_num_threads(threads);
      const auto backend = MakeKernelPpoBackend(net.get(), spaces, loss);
      const PpoSums got = backend->Compute(batch);
      if (threads == 1) {
        gradient = net->gradients().clone();
        sums = got;
      }
      const torch::Tensor shared = net->gradients().clone();
      const double off = (shared - gradient).abs().max().item<double>();
      // Other bits, and so it was shared, where there are samples for two.
      EXPECT_EQ(off > 0, threads > 1 && rows >= 240) << rows << ", " << threads;
      EXPECT_LT(off, 2e-6 * gradient.abs().max().item<double>());
      EXPECT_EQ(got.samples, rows);
      EXPECT_NEAR(got.policy_loss, sums.policy_loss, 1e-3);
      EXPECT_NEAR(got.entropy, sums.entropy, 1e-3);
      backend->Compute(batch);  // what was there before is no part of it
      EXPECT_TRUE(torch::equal(net->gradients(), shared));
    }
    at::set_num_threads(1);
  }
}

// PufferLib's max_minibatch_size: what does not go through the network at once
// adds up to what would, advantages normalised over all of it.
TEST(PpoBackendTest, AMinibatchInPartsGivesOneGradient) {
  const int64_t T = 6, B = 8;
  for (const bool recurrent : {false, true}) {
    v1::ModelConfig model;
    model.add_hidden(8);
    if (recurrent) model.set_recurrent(v1::GRU);
    model.set_recurrent_size(5);
    model.set_share_trunk(recurrent);
    const Spaces spaces = VectorSpaces(5, 3);
    const auto net = MakeNetwork(spaces, model, torch::kCPU).value();
    net->Initialize(2);
    torch::manual_seed(4);
    Rollout rollout = RandomRollout(spaces, T, B);
    rollout.valid.narrow(0, 2, 4).narrow(1, 3, 1).fill_(0);
    rollout.initial_state = torch::randn({B, 5});
    Random rng(1);
    Minibatches minibatches(rollout, 1, recurrent);
    minibatches.Shuffle(&rng);
    PpoBatch batch;
    batch.rollout = &rollout;
    batch.index = minibatches.Get(0).index;
    batch.columns = minibatches.Get(0).columns;
    batch.advantage = torch::randn({T, B});
    batch.returns = torch::randn({T, B});
    batch.clip_ratio = batch.value_clip = 0.2;
    double before_last = 0;
    batch.before_last_backward = [&] {
      before_last = net->gradients().abs().max().item<double>();
    };
    PolicyLoss loss = PpoLossOf(v1::PpoConfig());
    for (const auto& make : {MakeTorchPpoBackend, MakeFusedPpoBackend}) {
      loss.max_minibatch = 0;
      before_last = 0;
      const PpoSums want = make(net.get(), spaces, loss)->Compute(batch);
      EXPECT_EQ(before_last, 0);  // nothing is there before the only pass
      const torch::Tensor whole = net->gradients().clone();
      const double scale = whole.abs().max().item<double>();
      EXPECT_GT(scale, 0);
      // 44 steps: parts of 17, 17 and 10, or environment by environment.
      for (const int64_t most : {17, 6}) {
        loss.max_minibatch = most;
        const PpoSums sums = make(net.get(), spaces, loss)->Compute(batch);
        EXPECT_GT(before_last, 0);
        EXPECT_LT((net->gradients() - whole).abs().max().item<double>(),
                  1e-6 * scale + 1e-6);
        EXPECT_EQ(sums.samples, 44);
        EXPECT_NEAR(sums.policy_loss, want.policy_loss, 1e-4);
        EXPECT_NEAR(sums.approx_kl, want.approx_kl, 1e-4);
        before_last = 0;
      }
    }
  }
}

TEST(PpoBackendTest, AnEmptyBatchLeavesZeros) {
  const Spaces spaces = VectorSpaces(4, 2);
  const auto net = MakeNetwork(spaces, v1::ModelConfig(), torch::kCPU).value();
  net->Initialize(1);
  const Rollout rollout = RandomRollout(spaces, 4, 2);
  PpoBatch batch;
  batch.rollout = &rollout;
  batch.index = torch::empty({0}, torch::kInt32);
  batch.advantage = batch.returns = torch::zeros({4, 2});
  const PolicyLoss loss = PpoLossOf(v1::PpoConfig());
  for (const auto& backend : {MakeTorchPpoBackend(net.get(), spaces, loss),
                              MakeFusedPpoBackend(net.get(), spaces, loss),
                              MakeKernelPpoBackend(net.get(), spaces, loss)}) {
    net->gradients().fill_(7);
    EXPECT_EQ(backend->Compute(batch).samples, 0);
    EXPECT_EQ(net->gradients().abs().max().item<float>(), 0);
  }
}

}  // namespace
}  // namespace flotilla
