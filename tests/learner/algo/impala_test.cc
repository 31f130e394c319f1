#include "learner/algo/impala.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "learner/collective/solo_collective.h"
#include "learner/nn/actor_critic.h"
#include "learner/rollout/gather.h"
#include "tests/learner/algo/random_rollout.h"
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
int64_t Length(const Spaces& spaces) { return spaces.frames ? 3 : kT; }

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

// The paper's update in Torch, V-trace as its sum in float64: the change of
// `net`'s weights by one step of Adam.
void PaperStep(const v1::RunConfig& config, const Rollout& r,
               ActorCritic* net) {
  const v1::ImpalaConfig& impala = config.impala();
  const int64_t T = r.length, B = r.rows;
  const ActorCriticOutput out = net->Forward(GatherObservations(
      r, net->spaces(), torch::arange((T + 1) * B, torch::kInt32)));
  torch::Tensor log_prob, entropy;
  const torch::Tensor policy = out.policy.narrow(0, 0, T * B);
  if (net->spaces().continuous) {
    const torch::Tensor std = net->log_std().exp();
    const torch::Tensor z = (r.action.flatten(0, 1) - policy) / std;
    log_prob =
        (-0.5 * z * z - net->log_std() - 0.5 * std::log(2 * M_PI)).sum(1);
    entropy = (net->log_std() + 0.5 + 0.5 * std::log(2 * M_PI)).sum() *
              static_cast<double>(T * B);
  } else {
    const torch::Tensor all = torch::log_softmax(policy, 1);
    log_prob = all.gather(1, r.action.flatten().unsqueeze(1)).squeeze(1);
    entropy = -(all.exp() * all).sum();
  }
  const torch::Tensor ratio =
      (log_prob.detach().view({T, B}) - r.log_prob).to(torch::kFloat64).exp();
  const torch::Tensor value =
      out.value.detach().view({T + 1, B}).to(torch::kFloat64);
  torch::Tensor target = torch::zeros({T, B}, torch::kFloat64);
  torch::Tensor advantage = torch::zeros({T, B}, torch::kFloat64);
  for (int64_t b = 0; b < B; ++b) {
    double later = 0;  // v_{t+1} - V(x_{t+1}) where the episode goes on
    for (int64_t t = T - 1; t >= 0; --t) {
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
  const torch::Tensor value_loss = 0.5 * (out.value.narrow(0, 0, T * B) -
                                          target.flatten().to(torch::kFloat32))
                                             .square()
                                             .sum();
  const torch::Tensor loss = (policy_loss + impala.value_cost() * value_loss -
                              impala.entropy_cost() * entropy) /
                             (T * B);
  net->gradients().zero_();
  loss.backward();
  torch::NoGradGuard no_grad;
  torch::Tensor g = net->gradients();
  g.mul_(std::min(1.0, config.optimizer().max_grad_norm() /
                           (g.norm().item<double>() + 1e-6)));
  // Adam's first step.
  net->parameters().sub_(config.optimizer().learning_rate() * g /
                         (g.abs() + config.optimizer().epsilon()));
}

TEST(ImpalaTest, OneUpdateIsThePapers) {
  Spaces continuous = VectorSpaces(4, 2);
  continuous.continuous = true;
  for (const Spaces& spaces :
       {VectorSpaces(4, 2), continuous, AtariSpaces(4)}) {
    v1::RunConfig config = Config(Length(spaces));
    config.mutable_impala()->set_rho_clip(1.2);
    config.mutable_impala()->set_c_clip(0.9);
    // Smooth in the gradient, so that rounding cannot turn a step around.
    config.mutable_optimizer()->set_epsilon(1);
    config.mutable_optimizer()->set_learning_rate(0.1);
    torch::manual_seed(1);
    const Rollout rollout = RandomRollout(spaces, Length(spaces), kB);
    ActorCritic net =
        ActorCritic::Make(spaces, config.model(), torch::kCPU).value();
    net.Initialize(config.seed());
    const torch::Tensor before = net.parameters().clone();
    PaperStep(config, rollout, &net);
    const torch::Tensor moved = (net.parameters() - before).abs().max();
    EXPECT_GT(moved.item<double>(), 1e-3);
    const torch::Tensor got = Train(config, spaces, {rollout});
    EXPECT_LT((got - net.parameters()).abs().max().item<double>(), 1e-6);
  }
}

TEST(ImpalaTest, TwoRanksWithHalfTheRowsEqualOneRank) {
  for (const Spaces& spaces : {VectorSpaces(4, 2), AtariSpaces(4)}) {
    for (const double clip_ratio : {0.0, 0.2}) {
      if (spaces.frames && clip_ratio > 0) continue;
      v1::RunConfig config = Config(Length(spaces));
      config.mutable_impala()->set_clip_ratio(clip_ratio);
      config.mutable_impala()->set_epochs(spaces.frames ? 1 : 3);
      torch::manual_seed(1);
      const Rollout whole = RandomRollout(spaces, Length(spaces), kB);
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
        const auto updated = algorithm->Update(
            Columns(whole, rank * kB / 2, kB / 2), {0, 0, collective.get()});
        ASSERT_TRUE(updated.ok()) << updated.status();
        got[rank] = Weights(algorithm.get());
      });
      EXPECT_TRUE(torch::equal(got[0], got[1]));
      EXPECT_LT((got[0] - want).abs().max().item<double>(), 1e-6);
    }
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

TEST(ImpalaTest, RecurrentModelsAreRefused) {
  v1::RunConfig config = Config();
  config.mutable_model()->set_recurrent(v1::LSTM);
  const auto made = MakeAlgorithm(config, VectorSpaces(4, 2), torch::kCPU);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace flotilla
