#include "learner/algo/impala.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "learner/collective/solo_collective.h"
#include "learner/nn/network.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/learner/algo/slow_recurrent.h"
#include "tests/learner/collective/ranks.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

constexpr int64_t kT = 16, kB = 8;

v1::RunConfig Config(int64_t length = kT) {
  v1::RunConfig config;
  config.mutable_impala();
  config.mutable_env()->set_num_envs(kB);
  config.mutable_rollout()->set_length(length);
  return config;
}

// Frames take their time.
int64_t Length(const Spaces& spaces) { return HasFrames(spaces) ? 3 : kT; }

std::unique_ptr<Algorithm> Make(const v1::RunConfig& config,
                                const Spaces& spaces) {
  return MakeAlgorithm(config, spaces, torch::kCPU).value();
}

torch::Tensor Weights(Algorithm* algorithm) {
  std::vector<torch::Tensor> flat;
  for (const NamedTensor& t : algorithm->Weights()) {
    flat.push_back(t.tensor.flatten());
  }
  return torch::cat(flat).clone();
}

torch::Tensor Train(const v1::RunConfig& config, const Spaces& spaces,
                    const std::vector<Rollout>& rollouts) {
  auto algorithm = Make(config, spaces);
  SoloCollective alone;
  for (size_t i = 0; i < rollouts.size(); ++i) {
    const auto updated =
        algorithm->Update(rollouts[i], {static_cast<int64_t>(i), 0, &alone});
    EXPECT_TRUE(updated.ok()) << updated.status();
  }
  return Weights(algorithm.get());
}

// What the network says of a rollout's steps, with gradients.
struct Said {
  torch::Tensor log_prob;  // [T * B]
  torch::Tensor value;     // [(T + 1) * B]
  torch::Tensor entropy;   // []  the sum over steps
};

Said SayAll(const Rollout& r, const Network& net) {
  const int64_t T = r.length, B = r.rows;
  const NetworkOutput out = net.Forward(
      r.observation.Gather(torch::arange((T + 1) * B, torch::kInt32)));
  Said said;
  said.value = out.value;
  const torch::Tensor policy = out.policy.narrow(0, 0, T * B);
  if (out.log_std.defined()) {
    const torch::Tensor std = out.log_std.exp();
    const torch::Tensor z = (r.action.continuous.flatten(0, 1) - policy) / std;
    said.log_prob =
        (-0.5 * z * z - out.log_std - 0.5 * std::log(2 * M_PI)).sum(1);
    said.entropy = (out.log_std + 0.5 + 0.5 * std::log(2 * M_PI)).sum() *
                   static_cast<double>(T * B);
  } else {
    const torch::Tensor all = torch::log_softmax(policy, 1);
    said.log_prob = all.gather(1, r.action.discrete.flatten(0, 1)).squeeze(1);
    said.entropy = -(all.exp() * all).sum();
  }
  return said;
}

// The same of a recurrent network, step by step, and of valid steps alone.
Said SayAllSlowly(const Rollout& r, const SlowRecurrent& slow) {
  const int64_t T = r.length, B = r.rows;
  std::vector<torch::Tensor> log_prob(T * B), value((T + 1) * B);
  Said said;
  said.entropy = torch::zeros({}, torch::kFloat64);
  for (int64_t b = 0; b < B; ++b) {
    slow.Replay(r, b, [&](int64_t t, const SlowRecurrent::Said& step) {
      value[t * B + b] = step.value;
      if (t == T) return;
      log_prob[t * B + b] = torch::zeros({}, torch::kFloat64);
      if (!r.valid[t][b].item<uint8_t>()) return;
      const torch::Tensor& all = step.log_softmax;
      log_prob[t * B + b] = all[r.action.discrete[t][b][0].item<int64_t>()];
      said.entropy = said.entropy - (all.exp() * all).sum();
    });
  }
  said.log_prob = torch::stack(log_prob);
  said.value = torch::stack(value);
  return said;
}

// The paper's loss in Torch, a mean over valid steps; V-trace as its sum in
// float64.
torch::Tensor PaperLoss(const v1::ImpalaConfig& impala, const Rollout& r,
                        const Said& said) {
  const int64_t T = r.length, B = r.rows;
  const auto& [log_prob, all_values, entropy] = said;
  const torch::Tensor ratio =
      (log_prob.detach().view({T, B}) - r.log_prob).to(torch::kFloat64).exp();
  const torch::Tensor value =
      all_values.detach().view({T + 1, B}).to(torch::kFloat64);
  torch::Tensor target = torch::zeros({T, B}, torch::kFloat64);
  torch::Tensor advantage = torch::zeros({T, B}, torch::kFloat64);
  for (int64_t b = 0; b < B; ++b) {
    double later = 0;  // v_{t+1} - V(x_{t+1}) where the episode goes on
    for (int64_t t = T - 1; t >= 0; --t) {
      if (!r.valid[t][b].item<uint8_t>()) {
        later = 0;
        target[t][b] = value[t][b].item<double>();
        continue;
      }
      const bool terminated = r.terminated[t][b].item<uint8_t>();
      const bool truncated = r.truncated[t][b].item<uint8_t>();
      double next = value[t + 1][b].item<double>();
      if (truncated) next = r.bootstrap_value[t][b].item<float>();
      if (terminated) next = 0;
      if (terminated || truncated) later = 0;
      const double is = ratio[t][b].item<double>();
      const double delta = r.reward[t][b].item<float>() +
                           impala.discount() * next -
                           value[t][b].item<double>();
      advantage[t][b] = std::min(impala.pg_rho_clip(), is) *
                        (delta + impala.discount() * later);
      later = std::min(impala.rho_clip(), is) * delta +
              impala.discount() * std::min(impala.c_clip(), is) * later;
      target[t][b] = value[t][b].item<double>() + later;
    }
  }
  const torch::Tensor policy_loss =
      -(advantage.flatten().to(torch::kFloat32) * log_prob).sum();
  const torch::Tensor value_loss = 0.5 * (all_values.narrow(0, 0, T * B) -
                                          target.flatten().to(torch::kFloat32))
                                             .square()
                                             .sum();
  return (policy_loss + impala.value_cost() * value_loss -
          impala.entropy_cost() * entropy) /
         r.valid.sum().item<int64_t>();
}

// The change of `weights` by one step of Adam, the first.
void PaperStep(const v1::OptimizerConfig& optimizer, torch::Tensor g,
               torch::Tensor weights) {
  torch::NoGradGuard no_grad;
  g.mul_(std::min(
      1.0, optimizer.max_grad_norm() / (g.norm().item<double>() + 1e-6)));
  weights.sub_(optimizer.learning_rate() * g / (g.abs() + optimizer.epsilon()));
}

// So that rounding cannot turn a step around: smooth in the gradient.
v1::RunConfig SmoothConfig(int64_t length) {
  v1::RunConfig config = Config(length);
  config.mutable_impala()->set_rho_clip(1.2);
  config.mutable_impala()->set_c_clip(0.9);
  config.mutable_optimizer()->set_epsilon(1);
  config.mutable_optimizer()->set_learning_rate(0.1);
  return config;
}

TEST(ImpalaTest, OneUpdateIsThePapers) {
  for (const Spaces& spaces :
       {VectorSpaces(4, 2), ContinuousSpaces(4, 2), AtariSpaces(4)}) {
    const v1::RunConfig config = SmoothConfig(Length(spaces));
    torch::manual_seed(1);
    const Rollout rollout = RandomRollout(spaces, Length(spaces), kB);
    const auto net = MakeNetwork(spaces, config.model(), torch::kCPU).value();
    net->Initialize(config.seed());
    const torch::Tensor before = net->parameters().clone();
    net->gradients().zero_();
    PaperLoss(config.impala(), rollout, SayAll(rollout, *net)).backward();
    PaperStep(config.optimizer(), net->gradients(), net->parameters());
    const torch::Tensor moved = (net->parameters() - before).abs().max();
    EXPECT_GT(moved.item<double>(), 1e-3);
    const torch::Tensor got = Train(config, spaces, {rollout});
    EXPECT_LT((got - net->parameters()).abs().max().item<double>(), 1e-6);
  }
}

// Policy and V-trace from sequences that are replayed from where the rollout
// began, over episodes' ends and lost steps.
TEST(ImpalaTest, ARecurrentUpdateIsThePapersStepByStep) {
  const Spaces spaces = VectorSpaces(4, 2);
  for (const v1::RecurrentCell cell : {v1::LSTM, v1::GRU}) {
    for (const int layers : {1, 2}) {
      v1::RunConfig config = SmoothConfig(kT);
      *config.mutable_model() = RecurrentModel(cell, layers);
      torch::manual_seed(1);
      const int64_t S = Make(config, spaces)->live_policy()->state_size();
      const Rollout rollout = RecurrentRollout(spaces, kT, kB, S);
      const auto net = MakeNetwork(spaces, config.model(), torch::kCPU).value();
      net->Initialize(config.seed());
      const SlowRecurrent slow(*net, config.model());
      PaperLoss(config.impala(), rollout, SayAllSlowly(rollout, slow))
          .backward();
      std::vector<torch::Tensor> gradient;
      for (const NamedTensor& t : net->Named()) {
        gradient.push_back(
            slow.w.at(t.name).grad().flatten().to(torch::kFloat32));
      }
      const torch::Tensor before = net->parameters().clone();
      PaperStep(config.optimizer(), torch::cat(gradient), net->parameters());
      const torch::Tensor moved = (net->parameters() - before).abs().max();
      EXPECT_GT(moved.item<double>(), 1e-3);
      const torch::Tensor got = Train(config, spaces, {rollout});
      EXPECT_LT((got - net->parameters()).abs().max().item<double>(), 1e-6);
    }
  }
}

// With the actor's weights every ratio is 1: limits just above 1 cut nothing.
TEST(ImpalaTest, WhatARecurrentActorDecidedHasRatioOne) {
  const Spaces spaces = VectorSpaces(4, 2);
  v1::RunConfig config = SmoothConfig(kT);
  *config.mutable_model() = RecurrentModel(v1::LSTM, 2);
  const auto actor = Make(config, spaces);
  torch::manual_seed(1);
  Rollout rollout =
      RecurrentRollout(spaces, kT, kB, actor->live_policy()->state_size());
  Draws draws(1);
  Decide(actor->live_policy(), &draws, &rollout);
  const auto train_with_limits = [&](double limit) {
    config.mutable_impala()->set_rho_clip(limit);
    config.mutable_impala()->set_c_clip(limit);
    config.mutable_impala()->set_pg_rho_clip(limit);
    return Train(config, spaces, {rollout});
  };
  const auto difference = [&] {
    return (train_with_limits(1.0001) - train_with_limits(2))
        .abs()
        .max()
        .item<double>();
  };
  EXPECT_LT(difference(), 1e-6);
  // Another actor's would be cut.
  rollout.log_prob.sub_(0.5);
  EXPECT_GT(difference(), 1e-4);
}

void ExpectTwoRanksEqualOne(const v1::RunConfig& config, const Spaces& spaces,
                            const Rollout& whole) {
  const torch::Tensor want = Train(config, spaces, {whole});
  std::vector<torch::Tensor> got(2);
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const int rank = assignment.rank();
    auto collective = MakeCollective(assignment, v1::DistributedConfig(),
                                     coordinator, torch::kCPU)
                          .value();
    v1::RunConfig half = config;
    half.mutable_env()->set_num_envs(kB / 2);
    auto algorithm = Make(half, spaces);
    const auto updated =
        algorithm->Update(Columns(whole, spaces, rank * kB / 2, kB / 2),
                          {0, 0, collective.get()});
    ASSERT_TRUE(updated.ok()) << updated.status();
    got[rank] = Weights(algorithm.get());
  });
  EXPECT_TRUE(torch::equal(got[0], got[1]));
  EXPECT_LT((got[0] - want).abs().max().item<double>(), 1e-6);
}

TEST(ImpalaTest, TwoRanksWithHalfTheRowsEqualOneRank) {
  for (const Spaces& spaces : {VectorSpaces(4, 2), AtariSpaces(4)}) {
    for (const double clip_ratio : {0.0, 0.2}) {
      if (HasFrames(spaces) && clip_ratio > 0) continue;
      v1::RunConfig config = Config(Length(spaces));
      config.mutable_impala()->set_clip_ratio(clip_ratio);
      config.mutable_impala()->set_epochs(HasFrames(spaces) ? 1 : 3);
      torch::manual_seed(1);
      ExpectTwoRanksEqualOne(config, spaces,
                             RandomRollout(spaces, Length(spaces), kB));
    }
  }
}

TEST(ImpalaTest, TwoRanksWithHalfTheSequencesEqualOneRank) {
  const Spaces spaces = VectorSpaces(4, 2);
  for (const double clip_ratio : {0.0, 0.2}) {
    v1::RunConfig config = Config();
    *config.mutable_model() = RecurrentModel(v1::LSTM, 2);
    config.mutable_impala()->set_clip_ratio(clip_ratio);
    config.mutable_impala()->set_epochs(3);
    torch::manual_seed(1);
    const int64_t S = Make(config, spaces)->live_policy()->state_size();
    ExpectTwoRanksEqualOne(config, spaces, RecurrentRollout(spaces, kT, kB, S));
  }
}

TEST(ImpalaTest, ALostStepChangesNothing) {
  const Spaces spaces = VectorSpaces(4, 2);
  torch::manual_seed(3);
  Rollout a = RandomRollout(spaces, kT, kB);
  a.valid[5][2] = 0;
  Rollout b = a;
  b.reward = a.reward.clone();
  b.log_prob = a.log_prob.clone();
  b.reward[5][2] = 1e6;
  b.log_prob[5][2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(
      torch::equal(Train(Config(), spaces, {a}), Train(Config(), spaces, {b})));
}

// What the actor would never do again teaches nothing, and what it did by
// chance is not learned more than once over.
TEST(ImpalaTest, TheActorsLogProbabilitiesCount) {
  const Spaces spaces = VectorSpaces(4, 2);
  torch::manual_seed(3);
  Rollout a = RandomRollout(spaces, kT, kB);
  Rollout likelier = a;
  likelier.log_prob = a.log_prob + 1;
  EXPECT_FALSE(torch::equal(Train(Config(), spaces, {a}),
                            Train(Config(), spaces, {likelier})));
  // Once every ratio is clipped, how far beyond does not count.
  Rollout clipped = a, further = a;
  clipped.log_prob = torch::full_like(a.log_prob, -10);
  further.log_prob = torch::full_like(a.log_prob, -12);
  EXPECT_TRUE(torch::equal(Train(Config(), spaces, {clipped}),
                           Train(Config(), spaces, {further})));
}

TEST(ImpalaTest, AppoClipsWhereImpalaDoesNot) {
  const Spaces spaces = VectorSpaces(4, 2);
  torch::manual_seed(3);
  const Rollout rollout = RandomRollout(spaces, kT, kB);
  v1::RunConfig config = Config();
  config.mutable_impala()->set_epochs(20);
  config.mutable_optimizer()->set_learning_rate(0.01);
  SoloCollective alone;
  const auto clipped_fraction = [&] {
    const auto metrics =
        Make(config, spaces)->Update(rollout, {0, 0, &alone}).value();
    for (const Metric& metric : metrics) {
      if (metric.name == "losses/clipfrac") return metric.value;
    }
    return -1.0;
  };
  EXPECT_EQ(clipped_fraction(), 0);
  config.mutable_impala()->set_clip_ratio(0.1);
  EXPECT_GT(clipped_fraction(), 0);
}

}  // namespace
}  // namespace flotilla
