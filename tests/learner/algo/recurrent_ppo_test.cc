#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "learner/algo/ppo.h"
#include "learner/algo/ppo_backend.h"
#include "learner/collective/solo_collective.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/learner/algo/slow_recurrent.h"
#include "tests/learner/collective/ranks.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

using torch::Tensor;

constexpr int64_t kT = 12, kB = 4;

Tensor Weights(Algorithm* algorithm) {
  std::vector<Tensor> flat;
  for (const NamedTensor& t : algorithm->Weights()) {
    flat.push_back(t.tensor.flatten());
  }
  return torch::cat(flat);
}

// PPO's loss one row and one step at a time, in float64: the sum over the valid
// steps of `columns`.
Tensor SlowLoss(const SlowRecurrent& slow, const PolicyLoss& ppo,
                const PpoBatch& batch, const std::vector<int64_t>& columns) {
  const Rollout& r = *batch.rollout;
  const double clip = batch.clip_ratio;
  Tensor loss = torch::zeros({}, torch::kFloat64);
  for (int64_t b : columns) {
    slow.Replay(r, b, [&](int64_t t, const SlowRecurrent::Said& said) {
      if (t == r.length || !r.valid[t][b].item<uint8_t>()) return;
      const auto& [log_softmax, value] = said;
      const int64_t action = r.action.discrete[t][b][0].item<int64_t>();
      const Tensor ratio = (log_softmax[action] - r.log_prob[t][b]).exp();
      const Tensor a = batch.advantage[t][b].to(torch::kFloat64);
      const Tensor target = batch.returns[t][b].to(torch::kFloat64);
      const Tensor old = r.value[t][b].to(torch::kFloat64);
      const Tensor policy_loss =
          torch::max(-a * ratio, -a * ratio.clamp(1 - clip, 1 + clip));
      const Tensor near =
          old + (value - old).clamp(-batch.value_clip, batch.value_clip);
      const Tensor value_loss =
          0.5 * torch::max((value - target).square(), (near - target).square());
      const Tensor entropy = -(log_softmax.exp() * log_softmax).sum();
      loss = loss + policy_loss - ppo.entropy_cost * entropy +
             ppo.value_cost * value_loss;
    });
  }
  return loss;
}

class RecurrentPpoTest
    : public testing::TestWithParam<std::tuple<v1::RecurrentCell, int>> {
 protected:
  v1::ModelConfig model_ =
      RecurrentModel(std::get<0>(GetParam()), std::get<1>(GetParam()));
};

TEST_P(RecurrentPpoTest, LossAndGradientAreTheSlowLoops) {
  const Spaces spaces = VectorSpaces(3, 2);
  const auto net = MakeNetwork(spaces, model_, torch::kCPU).value();
  net->Initialize(2);
  torch::manual_seed(4);
  net->parameters().add_(0.2 * torch::randn_like(net->parameters()));
  const Rollout r = RecurrentRollout(spaces, kT, kB, net->state_size());

  const SlowRecurrent slow(*net, model_);
  v1::PpoConfig ppo;
  ppo.set_normalize_advantages(false);
  const PolicyLoss loss = PpoLossOf(ppo);
  PpoBatch batch;
  batch.rollout = &r;
  batch.advantage = torch::randn({kT, kB});
  batch.returns = torch::randn({kT, kB});
  batch.clip_ratio = 0.2;
  batch.value_clip = 0.2;
  batch.columns = torch::tensor({2, 1, 3}, torch::kInt32);
  std::vector<int32_t> index;
  for (int32_t t = 0; t < kT; ++t) {
    for (int32_t b : {2, 1, 3}) {
      if (r.valid[t][b].item<uint8_t>()) index.push_back(t * kB + b);
    }
  }
  batch.index = torch::tensor(index, torch::kInt32);

  const PpoSums sums =
      MakeTorchPpoBackend(net.get(), spaces, loss)->Compute(batch);
  const Tensor want = SlowLoss(slow, loss, batch, {2, 1, 3});
  want.backward();
  const double got = sums.policy_loss + loss.value_cost * sums.value_loss -
                     loss.entropy_cost * sums.entropy;
  EXPECT_EQ(sums.samples, static_cast<int64_t>(index.size()));
  EXPECT_NEAR(got, want.item<double>(), 1e-4 * std::abs(got));
  int64_t offset = 0;
  for (const NamedTensor& t : net->Named()) {
    const Tensor gradient = net->gradients()
                                .narrow(0, offset, t.tensor.numel())
                                .view(t.tensor.sizes());
    offset += t.tensor.numel();
    const Tensor slow_gradient = slow.w.at(t.name).grad();
    const double scale = slow_gradient.abs().max().item<double>();
    EXPECT_GT(scale, 1e-3) << t.name;
    EXPECT_LT((gradient - slow_gradient).abs().max().item<double>(),
              1e-5 * scale + 1e-5)
        << t.name;
  }
}

TEST_P(RecurrentPpoTest, TwoRanksWithHalfTheColumnsEqualOneRank) {
  const Spaces spaces = VectorSpaces(3, 2);
  v1::RunConfig config;
  *config.mutable_model() = model_;
  config.mutable_rollout()->set_length(kT);
  config.mutable_env()->set_num_envs(kB);
  // Normalised over ranks, or per rank they would differ.
  config.mutable_ppo()->set_normalize_advantages_over_ranks(true);
  config.mutable_ppo()->set_minibatches(1);
  config.mutable_ppo()->set_epochs(3);
  torch::manual_seed(1);
  auto make = [&](const v1::RunConfig& c) {
    return MakeAlgorithm(c, spaces, torch::kCPU).value();
  };
  auto one = make(config);
  const Rollout whole =
      RecurrentRollout(spaces, kT, kB, one->live_policy()->state_size());
  const Tensor before = Weights(one.get());
  SoloCollective alone;
  ASSERT_TRUE(one->Update(whole, {0, 0, &alone}).ok());
  const Tensor want = Weights(one.get());
  EXPECT_GT((want - before).abs().max().item<double>(), 1e-4);

  std::vector<Tensor> got(2);
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const int rank = assignment.rank();
    auto collective = MakeCollective(assignment, v1::DistributedConfig(),
                                     coordinator, torch::kCPU)
                          .value();
    v1::RunConfig half = config;
    half.mutable_env()->set_num_envs(kB / 2);
    auto algorithm = make(half);
    const auto updated =
        algorithm->Update(Columns(whole, spaces, rank * kB / 2, kB / 2),
                          {0, 0, collective.get()});
    ASSERT_TRUE(updated.ok()) << updated.status();
    got[rank] = Weights(algorithm.get());
  });
  EXPECT_TRUE(torch::equal(got[0], got[1]));
  EXPECT_LT((got[0] - want).abs().max().item<double>(), 1e-6);
}

// DD-PPO's H8: one rank's rollout was cut short; both take the same number of
// gradient steps, and end with the same weights.
TEST_P(RecurrentPpoTest, AShortenedRolloutTakesAsManyGradientSteps) {
  const Spaces spaces = VectorSpaces(3, 2);
  v1::RunConfig config;
  *config.mutable_model() = model_;
  config.mutable_rollout()->set_length(kT);
  config.mutable_env()->set_num_envs(kB);
  config.mutable_ppo()->set_minibatches(4);
  config.mutable_ppo()->set_epochs(2);
  std::vector<int64_t> steps(2);
  std::vector<Tensor> first(2);
  torch::manual_seed(3);
  const int64_t S = MakeAlgorithm(config, spaces, torch::kCPU)
                        .value()
                        ->live_policy()
                        ->state_size();
  std::vector<Rollout> rollouts = {RecurrentRollout(spaces, kT, kB, S),
                                   RecurrentRollout(spaces, kT, kB, S)};
  rollouts[1].valid.narrow(0, kT / 4, kT - kT / 4).fill_(0);
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const int rank = assignment.rank();
    auto collective = MakeCollective(assignment, v1::DistributedConfig(),
                                     coordinator, torch::kCPU)
                          .value();
    auto algorithm = MakeAlgorithm(config, spaces, torch::kCPU).value();
    const auto updated =
        algorithm->Update(rollouts[rank], {0, 0, collective.get()});
    ASSERT_TRUE(updated.ok()) << updated.status();
    for (const NamedTensor& t : algorithm->State()) {
      if (t.name == "adam.step") steps[rank] = t.tensor.item<int64_t>();
    }
    first[rank] = Weights(algorithm.get());
  });
  EXPECT_EQ(steps[0], 2 * 4);
  EXPECT_EQ(steps[1], 2 * 4);
  EXPECT_TRUE(torch::equal(first[0], first[1]));
}

INSTANTIATE_TEST_SUITE_P(Cells, RecurrentPpoTest,
                         testing::Combine(testing::Values(v1::LSTM, v1::GRU),
                                          testing::Values(1, 2)));

// Mean and variance over the steps of all ranks; DD-PPO's mean of means where
// ranks have as many.
TEST(AdvantagesTest, OverRanksTheyAreNormalisedByTheWholeBatch) {
  const Spaces spaces = VectorSpaces(4, 2);
  v1::RunConfig config;
  config.mutable_rollout()->set_length(kT);
  config.mutable_env()->set_num_envs(kB);
  config.mutable_ppo()->set_minibatches(1);
  config.mutable_ppo()->set_epochs(1);
  auto train = [&](const v1::RunConfig& c, const Rollout& rollout,
                   Collective* collective) {
    auto algorithm = MakeAlgorithm(c, spaces, torch::kCPU).value();
    EXPECT_TRUE(algorithm->Update(rollout, {0, 0, collective}).ok());
    return Weights(algorithm.get());
  };
  torch::manual_seed(1);
  Rollout whole = RandomRollout(spaces, kT, kB);
  // Very different advantages on the two ranks.
  whole.reward.narrow(1, 0, kB / 2).mul_(20).add_(5);
  SoloCollective alone;
  config.mutable_ppo()->set_normalize_advantages_over_ranks(true);
  const Tensor want = train(config, whole, &alone);
  for (bool over_ranks : {true, false}) {
    config.mutable_ppo()->set_normalize_advantages_over_ranks(over_ranks);
    std::vector<double> difference(2);
    RunRanks(2, [&](const v1::Assignment& assignment,
                    FakeCoordinatorClient* coordinator) {
      const int rank = assignment.rank();
      auto collective = MakeCollective(assignment, v1::DistributedConfig(),
                                       coordinator, torch::kCPU)
                            .value();
      v1::RunConfig half = config;
      half.mutable_env()->set_num_envs(kB / 2);
      const Tensor got =
          train(half, Columns(whole, spaces, rank * kB / 2, kB / 2),
                collective.get());
      difference[rank] = (got - want).abs().max().item<double>();
    });
    for (double d : difference) {
      if (over_ranks) {
        EXPECT_LT(d, 1e-6);
      } else {
        EXPECT_GT(d, 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace flotilla
