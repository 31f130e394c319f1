#include "learner/eval/evaluator.h"

#include <memory>
#include <vector>

#include "glog/logging.h"
#include "gtest/gtest.h"

namespace flotilla {
namespace {

// Pushes the cart one way: episodes of about ten steps, the same each time.
class OneWay : public Policy {
 public:
  void Decide(const Observations& seen, bool greedy, Draws*,
              const DecisionOutput& out) override {
    asked_greedy = greedy;
    for (int64_t r = 0; r < seen.rows; ++r) {
      out.discrete[r] = 1;
      out.log_prob[r] = out.value[r] = 0;
    }
  }
  void Value(const Observations& seen, float* value) override {
    std::fill_n(value, seen.rows, 0.0f);
  }
  bool asked_greedy = false;
};

EnvWorkerOptions CartPole(int rows) {
  EnvWorkerOptions options;
  options.env.set_id("CartPole-v1");
  options.env.set_num_envs(rows);
  options.learner_id = "learner/0/0";
  options.name = "evaluation";
  return options;
}

// What these workers serve, as a run that trained on them has it.
TrainedEnv TrainedOn(const EnvWorkerOptions& options) {
  const auto pool = EnvPool::Start(options, 0, 1);
  CHECK(pool.ok()) << pool.status();
  const auto spaces = DescribeSpaces((*pool)->spec(), {});
  CHECK(spaces.ok()) << spaces.status();
  return {(*pool)->spec(), *spaces};
}

// As Evaluate, by workers of the environment that was trained on.
absl::StatusOr<std::vector<EvaluatedEpisode>> PlayOn(
    const EnvWorkerOptions& options, Policy* policy, int episodes, bool greedy,
    uint64_t round, std::stop_token stop = {}) {
  return Evaluate(options, TrainedOn(options), policy, /*opponents=*/nullptr,
                  Normalizer(), episodes, greedy, round, stop);
}

TEST(EvaluatorTest, PlaysExactlyTheEpisodesAskedForAndGreedily) {
  OneWay policy;
  for (int episodes : {1, 5, 20}) {
    const auto played = PlayOn(CartPole(/*rows=*/8), &policy, episodes,
                               /*greedy=*/true, /*round=*/1);
    ASSERT_TRUE(played.ok()) << played.status();
    EXPECT_EQ(static_cast<int>(played->size()), episodes);
    for (const EvaluatedEpisode& e : *played) {
      EXPECT_EQ(e.raw_return, e.length);
      EXPECT_GE(e.length, 8);
      EXPECT_LE(e.length, 11);
    }
    EXPECT_TRUE(policy.asked_greedy);
  }
}

TEST(EvaluatorTest, TheTasksOwnMetricsComeWithEveryEpisode) {
  EnvWorkerOptions options = CartPole(4);
  options.env.set_id("Maze");
  options.env.mutable_options()->mutable_maze()->set_episode_steps(6);
  OneWay policy;
  const auto played = PlayOn(options, &policy, 8,
                             /*greedy=*/true, /*round=*/1);
  ASSERT_TRUE(played.ok()) << played.status();
  for (const EvaluatedEpisode& e : *played) {
    // Twelve steps away at the least.
    EXPECT_EQ(e.metrics.at("success"), 0);
    EXPECT_EQ(e.metrics.at("spl"), 0);
  }
}

// Trained against itself, or with both slots, and evaluated against what the
// environment plays: then that has one agent.
TEST(EvaluatorTest, EveryGameAgainstTheEnvironmentsOwnPlayerCounts) {
  EnvWorkerOptions options = CartPole(8);
  options.env.set_id("Selfplay");
  TrainedEnv trained = TrainedOn(options);
  ASSERT_EQ(trained.spec.agents(), 2);
  (*options.env.mutable_options()->mutable_kwargs())["opponent"] = "best";
  OneWay policy;
  const Opponents selves = {.players = {{1, std::make_shared<OneWay>(), 1}}};
  for (const bool selfplay : {false, true}) {
    SCOPED_TRACE(selfplay ? "against itself" : "both slots");
    trained.opponent_slots = selfplay ? 1 : 0;
    v1::RecordedGames games;
    const auto played = Evaluate(options, trained, &policy,
                                 selfplay ? &selves : nullptr, Normalizer(),
                                 /*episodes=*/20, /*greedy=*/true, /*round=*/1,
                                 /*stop=*/{}, &games);
    ASSERT_TRUE(played.ok()) << played.status();
    double returns = 0, scores = 0;
    for (const EvaluatedEpisode& e : *played) returns += e.raw_return;
    for (const v1::RecordedGame& game : games.game()) scores += game.score();
    EXPECT_EQ(games.game_size(), 20);
    EXPECT_NE(returns, 0);
    EXPECT_FLOAT_EQ(scores, returns);
  }
}

TEST(EvaluatorTest, RoundsPlayDifferentEpisodesAndARoundTheSame) {
  // Lengths alone hardly differ, so compare the sequence over many episodes.
  OneWay policy;
  auto lengths = [&](uint64_t round) {
    std::vector<int64_t> all;
    const auto played = PlayOn(CartPole(8), &policy, 64, true, round);
    for (const EvaluatedEpisode& e : played.value()) all.push_back(e.length);
    return all;
  };
  EXPECT_EQ(lengths(1), lengths(1));
  EXPECT_NE(lengths(1), lengths(2));
}

TEST(EvaluatorTest, StopsWhenTold) {
  OneWay policy;
  std::stop_source stop;
  stop.request_stop();
  const auto played =
      PlayOn(CartPole(4), &policy, 1000000, true, 1, stop.get_token());
  EXPECT_EQ(played.status().code(), absl::StatusCode::kCancelled);
}

TEST(EvaluatorTest, TheSummaryIsOfAllEpisodes) {
  const v1::Evaluation e = Summarize({{1.0, 10, {{"spl", 0.5}}},
                                      {-3.0, 20, {{"spl", 0}}},
                                      {8.0, 30, {{"spl", 1}}}});
  EXPECT_EQ(e.episodes(), 3);
  EXPECT_DOUBLE_EQ(e.mean_return(), 2.0);
  EXPECT_DOUBLE_EQ(e.min_return(), -3.0);
  EXPECT_DOUBLE_EQ(e.max_return(), 8.0);
  EXPECT_DOUBLE_EQ(e.mean_length(), 20.0);
  EXPECT_DOUBLE_EQ(e.mean_metric().at("spl"), 0.5);
}

TEST(EvaluatorTest, AtariIsEvaluatedOnWholeGames) {
  v1::RunConfig config;
  config.mutable_env()->set_id("ALE/Breakout-v5");
  EXPECT_FALSE(EvaluationWorkers(config).env.options().atari().episodic_life());
}

}  // namespace
}  // namespace flotilla
