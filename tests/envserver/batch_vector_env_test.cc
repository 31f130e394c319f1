#include "envserver/batch_vector_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "envserver/registry.h"
#include "tests/envserver/vector_env_rig.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two agents count up to what the seed says, each by its action, and observe
// environment, agent and count. At most one episode ends by itself.
class Counting final : public BatchEnvironment {
 public:
  explicit Counting(size_t environments) : games_(environments) {
    spec_.set_env_id("Counting");
    spec_.set_agents(2);
    v1::Leaf* observation = spec_.add_observation();
    observation->set_dtype(v1::INT64);
    observation->add_shape(2);
    v1::Leaf* action = spec_.add_action();
    action->set_dtype(v1::INT64);
    action->set_num_values(4);
    spec_.add_episode_metric("goal");
    spec_.set_max_episode_steps(6);
  }

  const v1::EnvSpec& spec() const override { return spec_; }

  void Reset(size_t e, uint64_t seed, Row observation) noexcept override {
    games_[e] = {.goal = 3 + static_cast<int64_t>(seed % 9), .count = {}};
    Observe(e, observation);
  }

  void StepAll(const BatchColumns& columns) noexcept override {
    for (size_t e = 0; e < games_.size(); ++e) {
      Game& game = games_[e];
      for (size_t a = 0; a < 2; ++a) {
        const auto action = ReadValue<int64_t>(columns.action[0], 2 * e + a);
        game.count[a] += action;
        columns.reward[2 * e + a] += static_cast<float>(action) / 2;
      }
      if (game.count[0] >= game.goal) columns.end[e] = kTerminated;
      if (game.count[1] >= 2 * game.goal) columns.end[e] = kTruncated;
      Observe(e, columns.observation);
    }
  }

  void GameOver(size_t e, size_t agent, v1::EpisodeEnd* end) override {
    (*end->mutable_metric())["goal"] =
        static_cast<double>(games_[e].goal + static_cast<int64_t>(agent));
  }

 private:
  struct Game {
    int64_t goal = 0;
    int64_t count[2] = {};
  };

  void Observe(size_t e, Row observation) const {
    for (size_t a = 0; a < 2; ++a) {
      WriteValue(observation[0], 4 * e + 2 * a, games_[e].goal);
      WriteValue(observation[0], 4 * e + 2 * a + 1, games_[e].count[a]);
    }
  }

  v1::EnvSpec spec_;
  std::vector<Game> games_;
};

absl::StatusOr<std::unique_ptr<BatchEnvironment>> MakeCounting(size_t e) {
  return std::make_unique<Counting>(e);
}

Rig BatchRig(BatchVectorEnv::Options options,
             BatchVectorEnv::MakeBatch make = MakeCounting) {
  return Rig(options.num_envs, options.num_groups,
             [&](VectorEnv::Listener* listener) {
               return BatchVectorEnv::Make(options, make, listener);
             });
}

TEST(BatchVectorEnvTest, EndsEpisodesAndStartsTheNextInTheSameStep) {
  Rig rig = BatchRig({.num_envs = 4, .seed = 2});
  rig.Reset();
  const int64_t goals[] = {rig.Observed<int64_t>(0, 0),
                           rig.Observed<int64_t>(0, 2)};
  // The first environment ends by its first agent, the other by the step limit.
  v1::StepBatch step;
  int64_t left = goals[0] - 3;
  for (int i = 1; i <= 5; ++i) {
    const int64_t some = std::min<int64_t>(left, 3);
    left -= some;
    step = rig.StepEach({some, 0, 0, 1});
    EXPECT_EQ(step.final_row_size(), 0);
  }
  step = rig.StepEach({3, 0, 0, 1});
  ASSERT_EQ(step.final_row_size(), 4);
  EXPECT_THAT(step.final_row(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Flags(step.terminated()), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(Flags(step.truncated()), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(Rewards(step), ElementsAre(1.5f, 0, 0, 0.5f));
  ASSERT_EQ(step.episode_end_size(), 4);
  EXPECT_EQ(step.episode_end(3).row(), 3);
  EXPECT_EQ(step.episode_end(3).raw_return(), 3);
  EXPECT_EQ(step.episode_end(3).length(), 6);
  EXPECT_EQ(step.episode_end(3).metric().at("goal"),
            static_cast<double>(goals[1] + 1));
  // [4, 2]: goal and count, as the step left them.
  const auto& finals = step.final_observation().leaf(0);
  EXPECT_EQ(ReadValue<int64_t>(std::as_bytes(std::span(finals)), 7), 6);
  EXPECT_EQ(rig.Observed<int64_t>(0, 3), rig.Observed<int64_t>(0, 2));
  EXPECT_TRUE(step.active().empty());
}

// The seed of a row is that of EpisodeSeed, however it is stepped, and nothing is
// seen, rewarded or counted otherwise: of each game that comes with Flotilla too.
class SameAsOneByOne : public testing::TestWithParam<const char*> {};

TEST_P(SameAsOneByOne, WhateverItIsCutInto) {
  EnvironmentRegistry registry;
  registry.AddBatch("Counting",
                    [](auto&, size_t e) { return MakeCounting(e); });
  v1::EnvOptions options;
  const std::string id = GetParam();
  int agents = id == "Counting" ? 2 : 1;
  if (id == "Snake") {
    agents = 6;
    for (const auto& [name, value] :
         std::map<std::string, std::string>{{"agents", "6"},
                                            {"width", "16"},
                                            {"height", "9"},
                                            {"food", "12"},
                                            {"longest", "8"}}) {
      (*options.mutable_kwargs())[name] = value;
    }
  }
  options.set_max_episode_steps(id == "Counting" ? 0 : 300);
  const int rows = 8 * agents;
  v1::EnvSpec stated = *registry.Stated(id, options);
  Rig one({.num_envs = rows,
           .num_groups = 2,
           .seed = 7,
           .worker_id = 3,
           .incarnation = 1,
           .stated = stated},
          [&] { return registry.Make(id, options, 3); });
  const auto make = [&](size_t environments) {
    return registry.MakeBatch(id, options, 3, environments);
  };
  BatchVectorEnv::Options batch{.num_envs = rows,
                                .num_groups = 2,
                                .seed = 7,
                                .worker_id = 3,
                                .incarnation = 1,
                                .stated = stated};
  Rig whole = BatchRig(batch, make);
  batch.threads = 3;
  batch.rows_of_thread = 1;
  Rig threads = BatchRig(batch, make);
  const int64_t choices = one.env().spec().action(0).num_values();
  std::minstd_rand random(5);
  for (Rig* rig : {&one, &whole, &threads}) {
    for (int g = 0; g < 2; ++g) rig->Reset(g);
  }
  int ends = 0;
  for (int step = 0; step < 700; ++step) {
    for (int g = 0; g < 2; ++g) {
      std::vector<int64_t> each(static_cast<size_t>(rows / 2));
      for (int64_t& action : each) {
        action = static_cast<int64_t>(random() >> 8) % choices;
      }
      for (Rig* rig : {&one, &whole, &threads}) rig->StepEach(each, g);
      ASSERT_EQ(one.Snapshot(g), whole.Snapshot(g)) << "step " << step;
      ASSERT_EQ(one.Snapshot(g), threads.Snapshot(g)) << "step " << step;
      ends += whole.StepEach(each, g).episode_end_size();
      one.StepEach(each, g);
      threads.StepEach(each, g);
    }
  }
  EXPECT_GE(ends, rows);
}

INSTANTIATE_TEST_SUITE_P(Games, SameAsOneByOne,
                         testing::Values("Counting", "Breakout", "Invaders",
                                         "Pong", "Snake"));

TEST(BatchVectorEnvTest, RowsDoNotDependOnHowManyThereAre) {
  Rig few = BatchRig({.num_envs = 2, .seed = 9});
  Rig many = BatchRig({.num_envs = 64, .seed = 9});
  few.Reset();
  many.Reset();
  for (int i = 0; i < 40; ++i) {
    for (int row : {0, 1}) {
      ASSERT_EQ(few.Observed<int64_t>(0, row), many.Observed<int64_t>(0, row));
    }
    few.Step(i % 4);
    many.Step(i % 4);
  }
}

TEST(BatchVectorEnvTest, AgentsThatDoNotDivideTheRowsAreRefused) {
  Completions done;
  EXPECT_THAT(
      BatchVectorEnv::Make({.num_envs = 3}, MakeCounting, &done).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("agents")));
}

}  // namespace
}  // namespace flotilla
