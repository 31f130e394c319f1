#include "learner/actor/agent_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <stop_token>
#include <tuple>
#include <utility>
#include <vector>

#include "learner/actor/env_pool.h"
#include "learner/device/host.h"
#include "learner/replay/replay_buffer.h"
#include "services/env/env_service.h"
#include "tests/learner/actor/turns.h"
#include "tests/testing/in_process_server.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

// Makes the same move always. Remembers how many it has made in the game, and
// says so in values.
class Mover : public Policy {
 public:
  explicit Mover(int64_t move) : move_(move) {}

  void Decide(const Observations& seen, bool, Draws*,
              const DecisionOutput& out) override {
    Value(seen, out.value);
    const auto* rows = static_cast<const float*>(seen.leaf[0]);
    for (int64_t r = 0; r < seen.rows; ++r) {
      out.discrete[r] = fails_at >= 0 && rows[4 * r] == fails_at ? 1 : move_;
      out.log_prob[r] = -rows[4 * r + 2];
      out.state[r] = seen.state[r] + 1;
      slots.insert(static_cast<int>(rows[4 * r + 1]));
    }
  }
  void Value(const Observations& seen, float* value) override {
    std::copy_n(seen.state, seen.rows, value);
  }
  int64_t state_size() const override { return 1; }

  float fails_at = -1;  // the game in which it fails the environment instead
  std::set<int> slots;  // that it has played

 private:
  const int64_t move_;
};

// A decision as a rollout has it.
struct Decision {
  float game, slot, ply, moves;  // observed
  int64_t action;
  float log_prob, value, reward;
  bool terminated, truncated, valid;
  float bootstrap;
};

class AgentCollectorTest : public ::testing::Test {
 protected:
  void Start(int agents, int environments, int groups, int opponent_slots = 0,
             bool truncates = false) {
    agents_ = agents;
    factory_.emplace(agents, truncates);
    factory_->staggered = staggered_;
    service_.emplace(&*factory_, PlayOptions());
    server_.emplace(std::vector<RpcServerOptions::NamedService>{
        {"flotilla.v1.EnvService", &*service_}});
    EnvWorkerOptions options;
    options.env.set_id("Turns");
    options.env.set_server(server_->address());
    options.env.set_num_envs(agents * environments);
    options.env.set_groups(groups);
    options.learner_id = "learner/0/0";
    options.name = "test";
    auto pool = EnvPool::Start(options, 0, 1);
    ASSERT_OK(pool);
    pool_ = *std::move(pool);
    const auto spaces = DescribeSpaces(pool_->spec(), model_);
    ASSERT_OK(spaces);
    spaces_ = *spaces;
    collector_ = MakeCollector(
        pool_.get(), spaces_,
        {.reset_state = reset_state_, .opponent_slots = opponent_slots},
        &normalizer_);
  }

  ~AgentCollectorTest() override {
    collector_.reset();
    pool_.reset();
    if (service_) service_->Shutdown();
    server_.reset();
  }

  // Every row's decisions, in order, over `rollouts` of `length` steps; between
  // two of them, what a row says of the next one is checked.
  void Play(int rollouts, int64_t length,
            const Preemption* preemption = nullptr,
            const Opponents* opponents = nullptr) {
    const int64_t B = collector_->rows();
    decisions_.resize(B);
    Rollout r = MakeRollout(spaces_, length, B, false, 1);
    for (int i = 0; i < rollouts; ++i) {
      ASSERT_OK(collector_->Collect(&policy_, &draws_, {}, preemption, &r,
                                    &stats_, opponents));
      ASSERT_EQ(r.valid_steps, r.valid.sum().item<int64_t>());
      ASSERT_EQ(r.played, r.valid.sum(0).max().item<int64_t>());
      for (int64_t b = 0; b < B; ++b) Append(r, b);
    }
  }

  void Append(const Rollout& r, int64_t b) {
    const float* seen = Host<float>(r.observation.leaf(0));
    const auto at = [&](int64_t t) { return seen + 4 * (t * r.rows + b); };
    const auto value = [&](int64_t t) { return r.value[t][b].item<float>(); };
    if (expects_value_.contains(b)) {
      // What the rollout before was bootstrapped from is what came next.
      EXPECT_EQ(value(0), expects_value_[b]) << "row " << b;
      expects_value_.erase(b);
    }
    EXPECT_EQ(r.initial_state[b][0].item<float>(),
              r.valid[0][b].item<uint8_t>() ? at(0)[3] : value(0));
    int64_t t = 0;
    for (; t < r.length && r.valid[t][b].item<uint8_t>(); ++t) {
      decisions_[b].push_back({at(t)[0], at(t)[1], at(t)[2], at(t)[3],
                               r.action.discrete[t][b].item<int64_t>(),
                               r.log_prob[t][b].item<float>(), value(t),
                               r.reward[t][b].item<float>(),
                               r.terminated[t][b].item<uint8_t>() != 0,
                               r.truncated[t][b].item<uint8_t>() != 0, true,
                               r.bootstrap_value[t][b].item<float>()});
    }
    // What is left is padding.
    for (int64_t rest = t; rest < r.length; ++rest) {
      EXPECT_EQ(r.valid[rest][b].item<uint8_t>(), 0);
      EXPECT_EQ(r.terminated[rest][b].item<uint8_t>(), 0);
    }
    if (t > 0 && !decisions_[b].back().terminated &&
        !decisions_[b].back().truncated) {
      expects_value_[b] = value(t);
    }
  }

  // That the row's decisions are all that its slot has made, in games of 4, 5,
  // 6, 4, ... plies from the first on, each with what came of it.
  void ExpectWholeGames(const std::vector<Decision>& row, int slot) {
    int game = 0, ply = slot;
    for (const Decision& d : row) {
      while (slot >= 4 + game % 3) ++game;  // over before its turn
      const int length = 4 + game % 3;
      ASSERT_EQ(std::tuple(d.game, d.slot, d.ply), std::tuple(game, slot, ply));
      EXPECT_EQ(d.value, d.moves);
      EXPECT_EQ(d.log_prob, -d.ply);
      const int next = std::min(ply + agents_, length);
      const bool last = ply + agents_ >= length;
      const float end = !last ? 0 : ply == length - 1 ? 1 : -1;
      EXPECT_FLOAT_EQ(d.reward, 0.25f * (next - ply) + end)
          << "game " << game << ", ply " << ply;
      EXPECT_EQ(d.terminated || d.truncated, last);
      if (d.truncated) {
        EXPECT_EQ(d.bootstrap, d.moves + 1);
      }
      ply += agents_;
      if (last) {
        ply = slot;
        ++game;
      }
    }
  }

  int agents_ = 2;
  bool reset_state_ = false;
  bool staggered_ = false;
  v1::ModelConfig model_;
  std::optional<TurnsFactory> factory_;
  std::optional<EnvService> service_;
  std::optional<InProcessServer> server_;
  std::unique_ptr<EnvPool> pool_;
  Spaces spaces_;
  Normalizer normalizer_;
  std::unique_ptr<Collector> collector_;
  Mover policy_{0};
  Draws draws_{1};
  CollectStats stats_;
  std::vector<std::vector<Decision>> decisions_;  // by row
  std::map<int64_t, float> expects_value_;
};

TEST_F(AgentCollectorTest, ARolloutCountsEachSlotsOwnDecisions) {
  for (const auto& [agents, groups, length] :
       {std::tuple(2, 1, 7), {2, 2, 1}, {3, 2, 5}, {5, 1, 4}}) {
    SCOPED_TRACE(::testing::Message() << agents << " agents");
    decisions_.clear();
    expects_value_.clear();
    pool_.reset();
    Start(agents, /*environments=*/4, groups);
    Play(/*rollouts=*/20, length);
    for (size_t b = 0; b < decisions_.size(); ++b) {
      ExpectWholeGames(decisions_[b], static_cast<int>(b) % agents);
      // A slot that moves rarely has its share in a fuller one's rollouts.
      EXPECT_GE(decisions_[b].size(), 20u * length / 3);
    }
  }
}

TEST_F(AgentCollectorTest, ATimeLimitBootstrapsFromTheFinalObservation) {
  Start(2, /*environments=*/2, /*groups=*/1, 0, /*truncates=*/true);
  Play(/*rollouts=*/5, 8);
  int truncated = 0;
  for (size_t b = 0; b < decisions_.size(); ++b) {
    ExpectWholeGames(decisions_[b], static_cast<int>(b) % 2);
    for (const Decision& d : decisions_[b]) truncated += d.truncated;
  }
  EXPECT_GT(truncated, 10);
}

// Slots come to a time limit at steps of their own: the rollout names them in the order
// in which games end.
TEST_F(AgentCollectorTest, AReplayHasWhatFollowedEveryTimeLimit) {
  Start(2, /*environments=*/1, /*groups=*/1, 0, /*truncates=*/true);
  ReplayBuffer replay(spaces_, collector_->rows(),
                      {.capacity = 1000, .n_step = 1, .discount = 0.9});
  Rollout r = MakeRollout(spaces_, 8, collector_->rows(), false, 1);
  std::set<std::pair<int, int>> played, drawn;  // game and ply
  bool sorted = true;
  for (int i = 0; i < 10; ++i) {
    ASSERT_OK(collector_->Collect(&policy_, &draws_, {}, nullptr, &r, &stats_));
    sorted &= std::ranges::is_sorted(r.final_step);
    const float* seen = Host<float>(r.observation.leaf(0));
    const uint8_t* valid = Host<uint8_t>(r.valid);
    for (int64_t at = 0; at < r.length * r.rows; ++at) {
      if (!valid[at]) continue;
      played.emplace(static_cast<int>(seen[4 * at]),
                     static_cast<int>(seen[4 * at + 2]));
    }
    replay.Add(r);
  }
  EXPECT_FALSE(sorted);
  ReplayBatch batch;
  ASSERT_TRUE(replay.Sample(5000, 1, &draws_, &batch));
  const float* seen = Host<float>(batch.observation.leaf[0]);
  const float* next = Host<float>(batch.next_observation.leaf[0]);
  for (int i = 0; i < 5000; ++i, seen += 4, next += 4) {
    const int game = static_cast<int>(seen[0]), ply = static_cast<int>(seen[2]);
    drawn.emplace(game, ply);
    ASSERT_EQ(std::tuple(next[0], next[1], next[2]),
              std::tuple(seen[0], seen[1], std::min(ply + 2, 4 + game % 3)))
        << "game " << game << ", ply " << ply;
  }
  EXPECT_EQ(drawn, played);
}

// How many of a row's stacks show what its slot did not see one after the other in one
// game: from the newest frame back its decisions, and then the oldest again and again.
int Spliced(const torch::Tensor& observation, int stack, int agents) {
  const float* seen = Host<float>(observation);
  int spliced = 0;
  for (int64_t i = 0; i < observation.size(0); ++i, seen += 4 * stack) {
    bool repeats = false, fits = true;
    for (int back = stack - 1; back > 0; --back) {
      const float* newer = seen + 4 * back;
      const float* older = newer - 4;
      const bool same = std::equal(older, newer, newer);
      fits &=
          same || (!repeats && older[0] == newer[0] && older[1] == newer[1] &&
                   older[2] == newer[2] - agents && older[3] == newer[3] - 1);
      repeats |= same;
    }
    spliced += !fits;
  }
  return spliced;
}

TEST_F(AgentCollectorTest, NoStackOfAReplayShowsWhatPadsARollout) {
  const int stack = 3;
  staggered_ = true;
  model_.add_leaf()->set_frame_stack(stack);
  Start(2, /*environments=*/3, /*groups=*/1);
  ReplayBuffer replay(spaces_, collector_->rows(),
                      {.capacity = 2000, .n_step = 2, .discount = 0.9});
  Rollout r = MakeRollout(spaces_, 7, collector_->rows(), false, 1);
  int64_t padding = 0;
  for (int i = 0; i < 30; ++i) {
    ASSERT_OK(collector_->Collect(&policy_, &draws_, {}, nullptr, &r, &stats_));
    padding += r.length * r.rows - r.valid_steps;
    replay.Add(r);
  }
  EXPECT_GT(padding, 30);
  ReplayBatch batch;
  ASSERT_TRUE(replay.Sample(20000, 1, &draws_, &batch));
  EXPECT_EQ(Spliced(batch.observation.leaf[0], stack, 2), 0);
  const torch::Tensor goes_on = batch.discount.nonzero().flatten();
  EXPECT_GT(goes_on.numel(), 0);
  EXPECT_EQ(Spliced(batch.next_observation.leaf[0].index_select(0, goes_on),
                    stack, 2),
            0);
}

// An update begins with initial_state, and has to come to the states that decided: also
// where a slot's first step was decided before the rollout, and zeroed is what follows
// from nothing else.
TEST_F(AgentCollectorTest, StatesThatAreResetAreThoseOfTheReplay) {
  int pending = 0;
  for (const bool reset : {false, true}) {
    for (const auto& [agents, groups, length] :
         {std::tuple(2, 1, 7), {2, 2, 1}, {3, 2, 5}, {5, 1, 4}}) {
      SCOPED_TRACE(::testing::Message()
                   << agents << " agents, reset " << reset);
      reset_state_ = reset;
      pool_.reset();
      Start(agents, /*environments=*/4, groups);
      Rollout r = MakeRollout(spaces_, length, collector_->rows(), false, 1);
      for (int i = 0; i < 20; ++i) {
        ASSERT_OK(
            collector_->Collect(&policy_, &draws_, {}, nullptr, &r, &stats_));
        for (int64_t b = 0; b < r.rows; ++b) {
          float state = r.initial_state[b][0].item<float>();
          pending += reset && state > 0;
          for (int64_t t = 0; t < length && r.valid[t][b].item<uint8_t>();
               ++t) {
            EXPECT_EQ(r.value[t][b].item<float>(), state)
                << "rollout " << i << ", row " << b << ", step " << t;
            const bool ends = r.terminated[t][b].item<uint8_t>() != 0 ||
                              r.truncated[t][b].item<uint8_t>() != 0;
            state = ends ? 0 : state + 1;
          }
        }
      }
    }
  }
  EXPECT_GT(pending, 0);
}

// Of games of 4 and 5 plies two rollouts are all but the last one, which ends the second
// game after the collection that it was decided in has failed.
TEST_F(AgentCollectorTest,
       AStateBeginsAnewWhereAFailedCollectionsStepEndsAGame) {
  Start(2, /*environments=*/1, /*groups=*/1);
  Rollout r = MakeRollout(spaces_, 2, collector_->rows(), false, 1);
  const auto collect = [&](std::stop_token stop) {
    return collector_->Collect(&policy_, &draws_, stop, nullptr, &r, &stats_);
  };
  ASSERT_OK(collect({}));
  ASSERT_OK(collect({}));
  std::stop_source stopped;
  stopped.request_stop();
  ASSERT_TRUE(absl::IsCancelled(collect(stopped.get_token())));
  EXPECT_EQ(r.initial_state[0][0].item<float>(), 2);
  ASSERT_OK(collect({}));
  ASSERT_EQ(r.valid[0][0].item<int>(), 1);
  EXPECT_EQ(r.observation.leaf(0)[0][0][0].item<float>(), 2);  // the game
  EXPECT_EQ(r.value[0][0].item<float>(), 0);
  EXPECT_EQ(r.initial_state[0][0].item<float>(), 0);
}

TEST_F(AgentCollectorTest, NothingIsLostWhereARolloutEndsShort) {
  Start(2, /*environments=*/4, /*groups=*/2);
  Preemption preemption;
  int polls = 0;
  preemption.asked = [&] { return ++polls % 7 == 0; };
  Play(/*rollouts=*/40, 6, &preemption);
  for (size_t b = 0; b < decisions_.size(); ++b) {
    ExpectWholeGames(decisions_[b], static_cast<int>(b) % 2);
    EXPECT_FALSE(decisions_[b].empty());
  }
}

TEST_F(AgentCollectorTest, AFailedEnvironmentLosesTheDecisionsOfAllItsSlots) {
  Start(2, /*environments=*/2, /*groups=*/1);
  policy_.fails_at = 1;
  Rollout r = MakeRollout(spaces_, 12, 4, false, 1);
  ASSERT_OK(collector_->Collect(&policy_, &draws_, {}, nullptr, &r, &stats_));
  // Game 0 has 4 plies; in game 1 slot 0 fails at once; then game 2.
  const auto column = [](const torch::Tensor& t, int64_t b) {
    std::vector<int> values;
    for (int64_t i = 0; i < 4; ++i) values.push_back(t[i][b].item<int>());
    return values;
  };
  EXPECT_EQ(column(r.valid, 0), (std::vector{1, 1, 0, 1}));
  EXPECT_EQ(column(r.valid, 1), (std::vector{1, 1, 1, 1}));
  EXPECT_EQ(column(r.terminated, 0), (std::vector{0, 1, 0, 0}));
  EXPECT_EQ(r.observation.leaf(0)[3][0][0].item<int>(), 2);  // the game
  EXPECT_EQ(r.observation.leaf(0)[2][1][0].item<int>(), 2);
  EXPECT_EQ(r.reward[2][0].item<float>(), 0);
}

TEST_F(AgentCollectorTest, OpponentsPlayTheirSlotsAndAreNotLearnedFrom) {
  Start(2, /*environments=*/4, /*groups=*/2, /*opponent_slots=*/1);
  ASSERT_EQ(collector_->rows(), 4);
  const auto earlier = std::make_shared<Mover>(2);
  Opponents opponents;
  opponents.latest_share = 0;
  opponents.players = {{.snapshot = 7, .policy = earlier, .share = 1}};
  Play(/*rollouts=*/20, 6, nullptr, &opponents);
  // Of environments 0, 1, 2, 3 the learner has slots 1, 0, 1, 0.
  for (size_t b = 0; b < decisions_.size(); ++b) {
    const int slot = b % 2 == 0 ? 1 : 0;
    ExpectWholeGames(decisions_[b], slot);
    for (const Decision& d : decisions_[b]) EXPECT_EQ(d.action, 0);
  }
  EXPECT_EQ(policy_.slots, (std::set{0, 1}));
  EXPECT_EQ(earlier->slots, (std::set{0, 1}));
  ASSERT_THAT(stats_.games, Not(IsEmpty()));
  double won = 0;
  for (const GameResult& game : stats_.games) {
    EXPECT_EQ(game.snapshot, 7);
    won += game.score;
  }
  // Who makes the last ply wins; half of the learner's slots is each one.
  EXPECT_GT(won, 0);
  EXPECT_LT(won, static_cast<double>(stats_.games.size()));
  double returns = 0;
  for (const CollectStats::Episode& e : stats_.episodes) {
    returns += e.raw_return > 1.9;  // 0.25 a ply, 1 at the end
  }
  EXPECT_EQ(returns, won);
  EXPECT_EQ(stats_.episodes.size(), stats_.games.size());
}

TEST_F(AgentCollectorTest, TheNewestPolicyMayPlayBothSides) {
  Start(2, /*environments=*/2, /*groups=*/1, /*opponent_slots=*/1);
  const auto earlier = std::make_shared<Mover>(2);
  Opponents opponents;
  opponents.latest_share = 1;
  opponents.players = {{.snapshot = 7, .policy = earlier, .share = 1}};
  Play(/*rollouts=*/4, 6, nullptr, &opponents);
  EXPECT_THAT(earlier->slots, IsEmpty());
  EXPECT_THAT(stats_.games, IsEmpty());
  for (size_t b = 0; b < decisions_.size(); ++b) {
    ExpectWholeGames(decisions_[b], b % 2 == 0 ? 1 : 0);
  }
}

}  // namespace
}  // namespace flotilla
