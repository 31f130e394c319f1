#include "learner/nn/action_scorer.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "learner/nn/policies.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

struct Case {
  const char* name;
  Spaces spaces;
  v1::RecurrentCell cell;
  int64_t T;
};

std::vector<Case> FeedForward() {
  return {{"Kernels", VectorSpaces(4, 3), v1::NONE, 200},
          {"ContinuousKernels", ContinuousSpaces(4, 3), v1::NONE, 200},
          {"MaskedKernels", MaskedSpaces(4, {3, 2}), v1::NONE, 200},
          {"Frames", AtariSpaces(4), v1::NONE, 4}};
}

std::vector<Case> WithMemory() {
  return {{"Lstm", VectorSpaces(4, 3), v1::LSTM, 14},
          {"Gru", VectorSpaces(4, 3), v1::GRU, 14},
          {"ContinuousLstm", ContinuousSpaces(4, 3), v1::LSTM, 14},
          {"FramesAndLstm", AtariSpaces(4), v1::LSTM, 9}};
}

// A rollout of an actor with the very weights that are scored with, decided one
// step at a time.
class ActionScorerTest : public testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kB = 4;

  ActionScorerTest() : spaces_(GetParam().spaces), T_(GetParam().T) {
    v1::ModelConfig model;
    model.add_hidden(16);
    model.set_recurrent(GetParam().cell);
    model.set_recurrent_size(8);
    model.set_recurrent_layers(2);
    net_ = MakeNetwork(spaces_, model, torch::kCPU).value();
    net_->Initialize(2);
    torch::manual_seed(3);
    net_->parameters().add_(0.1 * torch::randn_like(net_->parameters()));
    rollout_ = RandomRollout(spaces_, T_, kB);
    rollout_.valid.narrow(0, 1, 2).narrow(1, 2, 1).fill_(0);
    rollout_.valid[T_ - 1][3] = 0;
    if (net_->recurrent()) {
      rollout_.initial_state = torch::randn({kB, net_->state_size()});
    }
    Draws draws(1);
    Decide(MakeNetworkPolicy(net_.get(), spaces_).get(), &draws, &rollout_);
    EXPECT_GT(rollout_.log_prob.std().item<float>(), 0.01);
  }

  static double Difference(const torch::Tensor& a, const torch::Tensor& b) {
    return (a - b).abs().max().item<double>();
  }

  const Spaces spaces_;
  const int64_t T_;
  std::unique_ptr<Network> net_;
  Rollout rollout_;
};

TEST_P(ActionScorerTest, WithTheActorsWeightsItSaysWhatTheActorRecorded) {
  ActionScorer scorer(net_.get(), spaces_);
  torch::Tensor log_prob = torch::zeros({T_, kB});
  torch::Tensor value = torch::zeros({T_ + 1, kB});
  scorer.Score(rollout_, &log_prob, &value);
  EXPECT_LT(Difference(log_prob, rollout_.log_prob), 2e-5);
  EXPECT_LT(Difference(value, rollout_.value), 2e-5);
  // It reads the weights as they are.
  net_->parameters().add_(0.1);
  scorer.Score(rollout_, &log_prob, &value);
  EXPECT_GT(Difference(value, rollout_.value), 1e-2);
}

TEST_P(ActionScorerTest, SomeStepsAreThoseOfTheWholeRollout) {
  const std::vector<int32_t> environments = {2, 0, 3};
  std::vector<int32_t> steps;
  for (int32_t t = 0; t < T_; ++t) {
    for (const int32_t b : environments) {
      if (rollout_.valid[t][b].item<uint8_t>()) steps.push_back(t * kB + b);
    }
  }
  const torch::Tensor index = torch::tensor(steps, torch::kInt32);
  const torch::Tensor columns = torch::tensor(environments, torch::kInt32);
  torch::Tensor log_prob = torch::zeros({index.numel()});
  torch::Tensor value = torch::zeros({index.numel()});
  ActionScorer(net_.get(), spaces_)
      .ScoreSteps(rollout_, index, columns, &log_prob, &value);
  EXPECT_LT(
      Difference(log_prob, rollout_.log_prob.flatten().index_select(0, index)),
      2e-5);
  EXPECT_LT(Difference(value, rollout_.value.flatten().index_select(0, index)),
            2e-5);
}

class RecurrentScorerTest : public ActionScorerTest {};

TEST_P(RecurrentScorerTest, OnlyTheStateThatRowsRememberedGivesTheSame) {
  rollout_.initial_state = rollout_.initial_state + 1;
  torch::Tensor log_prob = torch::zeros({T_, kB});
  torch::Tensor value = torch::zeros({T_ + 1, kB});
  ActionScorer(net_.get(), spaces_).Score(rollout_, &log_prob, &value);
  EXPECT_GT(Difference(value[0], rollout_.value[0]), 1e-3);
  // Row 2's first loss is at step 1: it has forgotten all by step 2.
  const int64_t after = T_ + 1 - 2;
  EXPECT_LT(Difference(value.narrow(0, 2, after).select(1, 2),
                       rollout_.value.narrow(0, 2, after).select(1, 2)),
            2e-5);
}

std::string Name(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(FeedForward, ActionScorerTest,
                         testing::ValuesIn(FeedForward()), Name);
INSTANTIATE_TEST_SUITE_P(WithMemory, ActionScorerTest,
                         testing::ValuesIn(WithMemory()), Name);
INSTANTIATE_TEST_SUITE_P(WithMemory, RecurrentScorerTest,
                         testing::ValuesIn(WithMemory()), Name);

}  // namespace
}  // namespace flotilla
