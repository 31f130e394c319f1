#include <map>
#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "learner/algo/ppo.h"
#include "learner/algo/ppo_backend.h"
#include "learner/collective/solo_collective.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/learner/collective/ranks.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

using torch::Tensor;

constexpr int64_t kT = 12, kB = 4;

v1::ModelConfig Model(v1::RecurrentCell cell, int layers) {
  v1::ModelConfig model;
  model.add_hidden(6);
  model.set_recurrent(cell);
  model.set_recurrent_size(5);
  model.set_recurrent_layers(layers);
  return model;
}

Tensor Weights(Algorithm* algorithm) {
  std::vector<Tensor> flat;
  for (const NamedTensor& t : algorithm->Weights()) {
    flat.push_back(t.tensor.flatten());
  }
  return torch::cat(flat);
}

Rollout RecurrentRollout(const Spaces& spaces, int64_t state_size) {
  Rollout r = RandomRollout(spaces, kT, kB);
  r.initial_state = 0.5 * torch::randn({kB, state_size});
  // Two steps lost in one row, the end of the rollout in another.
  r.valid.narrow(0, 4, 2).narrow(1, 1, 1).fill_(0);
  r.valid.narrow(0, 9, 3).narrow(1, 2, 1).fill_(0);
  return r;
}

// The network and PPO's loss one row and one step at a time, in float64, from
// the weights' names: trunk, cell, heads. Returns the sum of losses over the
// valid steps of `columns`; differentiable in `w`.
struct SlowPpo {
  std::map<std::string, Tensor> w;
  v1::ModelConfig model;
  v1::PpoConfig ppo;

  std::vector<Tensor> Cell(const std::string& layer, const Tensor& x,
                           std::vector<Tensor> before) const {
    const bool lstm = model.recurrent() == v1::LSTM;
    const std::string name = lstm ? "lstm." : "gru.";
    auto weight = [&](const std::string& what) {
      return w.at(name + what + "_l" + layer);
    };
    const Tensor from_x = torch::mv(weight("weight_ih"), x) + weight("bias_ih");
    const Tensor from_h =
        torch::mv(weight("weight_hh"), before[0]) + weight("bias_hh");
    const auto a = from_x.chunk(lstm ? 4 : 3), b = from_h.chunk(lstm ? 4 : 3);
    if (lstm) {
      const Tensor c = torch::sigmoid(a[1] + b[1]) * before[1] +
                       torch::sigmoid(a[0] + b[0]) * torch::tanh(a[2] + b[2]);
      return {torch::sigmoid(a[3] + b[3]) * torch::tanh(c), c};
    }
    const Tensor r = torch::sigmoid(a[0] + b[0]),
                 z = torch::sigmoid(a[1] + b[1]);
    const Tensor n = torch::tanh(a[2] + r * b[2]);
    return {(1 - z) * n + z * before[0]};
  }

  Tensor Loss(const Rollout& r, const Tensor& advantage, const Tensor& returns,
              const std::vector<int64_t>& columns, double clip,
              double value_clip) const {
    const int64_t H = model.recurrent_size();
    const int planes = model.recurrent() == v1::LSTM ? 2 : 1;
    Tensor loss = torch::zeros({}, torch::kFloat64);
    for (int64_t b : columns) {
      // state[layer][plane]
      std::vector<std::vector<Tensor>> state(model.recurrent_layers());
      for (int l = 0; l < model.recurrent_layers(); ++l) {
        for (int p = 0; p < planes; ++p) {
          state[l].push_back(r.initial_state[b]
                                 .narrow(0, (l * planes + p) * H, H)
                                 .to(torch::kFloat64));
        }
      }
      bool begins = false;
      for (int64_t t = 0; t < r.length; ++t) {
        if (begins) {
          for (auto& layer : state) {
            for (Tensor& plane : layer) plane = torch::zeros_like(plane);
          }
        }
        Tensor x =
            torch::tanh(torch::mv(w.at("trunk.0.weight"),
                                  r.observation[t][b].to(torch::kFloat64)) +
                        w.at("trunk.0.bias"));
        for (int l = 0; l < model.recurrent_layers(); ++l) {
          state[l] = Cell(std::to_string(l), x, state[l]);
          x = state[l][0];
        }
        const bool valid = r.valid[t][b].item<uint8_t>();
        begins = r.terminated[t][b].item<uint8_t>() ||
                 r.truncated[t][b].item<uint8_t>() || !valid;
        if (!valid) continue;
        const Tensor log_softmax = torch::log_softmax(
            torch::mv(w.at("policy.weight"), x) + w.at("policy.bias"), 0);
        const Tensor value =
            (torch::mv(w.at("value.weight"), x) + w.at("value.bias"))[0];
        const Tensor ratio =
            (log_softmax[r.action[t][b].item<int64_t>()] - r.log_prob[t][b])
                .exp();
        const Tensor a = advantage[t][b].to(torch::kFloat64);
        const Tensor target = returns[t][b].to(torch::kFloat64);
        const Tensor old = r.value[t][b].to(torch::kFloat64);
        const Tensor policy_loss =
            torch::max(-a * ratio, -a * ratio.clamp(1 - clip, 1 + clip));
        const Tensor near = old + (value - old).clamp(-value_clip, value_clip);
        const Tensor value_loss = 0.5 * torch::max((value - target).square(),
                                                   (near - target).square());
        const Tensor entropy = -(log_softmax.exp() * log_softmax).sum();
        loss = loss + policy_loss - ppo.entropy_cost() * entropy +
               ppo.value_cost() * value_loss;
      }
    }
    return loss;
  }
};

class RecurrentPpoTest
    : public testing::TestWithParam<std::tuple<v1::RecurrentCell, int>> {
 protected:
  v1::ModelConfig model_ =
      Model(std::get<0>(GetParam()), std::get<1>(GetParam()));
};

TEST_P(RecurrentPpoTest, LossAndGradientAreTheSlowLoops) {
  const Spaces spaces = VectorSpaces(3, 2);
  ActorCritic net = ActorCritic::Make(spaces, model_, torch::kCPU).value();
  net.Initialize(2);
  torch::manual_seed(4);
  net.parameters().add_(0.2 * torch::randn_like(net.parameters()));
  const Rollout r = RecurrentRollout(spaces, net.state_size());

  SlowPpo slow;
  slow.model = model_;
  slow.ppo.set_normalize_advantages(false);
  for (const NamedTensor& t : net.Named()) {
    slow.w[t.name] =
        t.tensor.to(torch::kFloat64).clone().set_requires_grad(true);
  }
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

  const PpoSums sums = MakeTorchPpoBackend(&net, slow.ppo)->Compute(batch);
  const Tensor want =
      slow.Loss(r, batch.advantage, batch.returns, {2, 1, 3}, 0.2, 0.2);
  want.backward();
  const double got = sums.policy_loss +
                     slow.ppo.value_cost() * sums.value_loss -
                     slow.ppo.entropy_cost() * sums.entropy;
  EXPECT_EQ(sums.samples, static_cast<int64_t>(index.size()));
  EXPECT_NEAR(got, want.item<double>(), 1e-4 * std::abs(got));
  int64_t offset = 0;
  for (const NamedTensor& t : net.Named()) {
    const Tensor gradient = net.gradients()
                                .narrow(0, offset, t.tensor.numel())
                                .view(t.tensor.sizes());
    offset += t.tensor.numel();
    const Tensor slow_gradient = slow.w[t.name].grad();
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
      RecurrentRollout(spaces, one->live_policy()->state_size());
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
    const auto updated = algorithm->Update(
        Columns(whole, rank * kB / 2, kB / 2), {0, 0, collective.get()});
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
  std::vector<Rollout> rollouts = {RecurrentRollout(spaces, S),
                                   RecurrentRollout(spaces, S)};
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
          train(half, Columns(whole, rank * kB / 2, kB / 2), collective.get());
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
