#include "envserver/envs/diagnostic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "services/base/random.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::HasSubstr;

// Plays one environment of any leaves, whose values are all taken for numbers.
class Play {
 public:
  explicit Play(std::unique_ptr<Environment> environment)
      : environment_(std::move(environment)) {
    for (const v1::Leaf& leaf : environment_->spec().observation()) {
      size_t bytes = leaf.dtype() == v1::FLOAT32 ? sizeof(float) : 1;
      for (int64_t dim : leaf.shape()) bytes *= static_cast<size_t>(dim);
      memory_.emplace_back(bytes);
    }
    for (auto& leaf : memory_) observation_.push_back(std::span(leaf));
  }

  void Reset(uint64_t seed) {
    for (auto& leaf : memory_) {
      std::fill(leaf.begin(), leaf.end(), std::byte{0xAB});
    }
    EXPECT_OK(environment_->Reset(seed, observation_));
  }

  template <typename Value>
  Outcome Step(const std::vector<std::vector<Value>>& action) {
    std::vector<std::span<const std::byte>> leaves;
    for (const auto& leaf : action) {
      leaves.push_back(std::as_bytes(std::span(leaf)));
    }
    auto outcome = environment_->Step(leaves, observation_);
    CHECK(outcome.ok()) << outcome.status();
    return *outcome;
  }
  Outcome Choose(int64_t value) { return Step<int64_t>({{value}}); }

  // The score of the episode that ended, as ThreadVectorEnv asks for it.
  double Score() {
    Reset(12345);
    v1::EpisodeEnd end;
    EXPECT_TRUE(environment_->GameOver(&end));
    EXPECT_EQ(end.metric_size(), 1);
    return end.metric().at("score");
  }

  std::vector<float> Leaf(size_t index) const {
    const bool floats =
        environment_->spec().observation(static_cast<int>(index)).dtype() ==
        v1::FLOAT32;
    std::vector<float> values;
    for (size_t i = 0; i < memory_[index].size() / (floats ? 4 : 1); ++i) {
      values.push_back(floats ? ReadValue<float>(memory_[index], i)
                              : ReadValue<uint8_t>(memory_[index], i));
    }
    return values;
  }
  std::vector<std::vector<std::byte>> bytes() const { return memory_; }
  const v1::EnvSpec& spec() const { return environment_->spec(); }

 private:
  std::unique_ptr<Environment> environment_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::span<std::byte>> observation_;
};

Play MakeSpacesHiding(const std::string& hide) {
  auto made = MakeSpaces(hide);
  CHECK(made.ok()) << made.status();
  return Play(*std::move(made));
}

// What an episode of chosen actions showed, paid and ended with.
std::string Story(Play play, uint64_t seed, uint64_t action_seed) {
  Random random(action_seed);
  std::string story;
  play.Reset(seed);
  for (bool over = false; !over;) {
    for (const auto& leaf : play.bytes()) {
      story.append(reinterpret_cast<const char*>(leaf.data()), leaf.size());
    }
    Outcome outcome;
    if (play.spec().action(0).num_values() == 0) {
      outcome = play.Step<float>({{static_cast<float>(random.Uniform(-1, 1)),
                                   static_cast<float>(random.Uniform(-1, 1))}});
    } else {
      std::vector<std::vector<int64_t>> action;
      for (const v1::Leaf& leaf : play.spec().action()) {
        action.push_back({static_cast<int64_t>(
            random.Below(static_cast<uint64_t>(leaf.num_values())))});
      }
      outcome = play.Step<int64_t>(action);
    }
    absl::StrAppend(&story, "|", outcome.reward, "|");
    over = outcome.terminated || story.size() > 5000;
  }
  return story;
}

TEST(DiagnosticTest, EpisodesFollowTheSeedAndTheActions) {
  const std::pair<bool, std::function<Play()>> kinds[] = {
      {false, [] { return Play(MakeBandit()); }},
      {false, [] { return Play(MakeStochastic()); }},
      {false, [] { return Play(MakePassword()); }},
      {true, [] { return Play(MakeMemory()); }},
      {true, [] { return Play(MakeSquared()); }},
      {true, [] { return Play(MakeContinuous()); }},
      {true, [] { return MakeSpacesHiding(""); }},
      {true, [] { return Play(MakeMask(false)); }}};
  for (const auto& [drawn, make] : kinds) {
    SCOPED_TRACE(make().spec().env_id());
    EXPECT_EQ(Story(make(), 1, 7), Story(make(), 1, 7));
    // Seeds 0 to 19, with the same actions: one task or several.
    bool differs = false;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      differs = differs || Story(make(), seed, 7) != Story(make(), 1, 7);
    }
    EXPECT_EQ(differs, drawn);
  }
}

TEST(BanditTest, OneArmPays) {
  Play play(MakeBandit());
  for (int64_t arm = 0; arm < 10; ++arm) {
    play.Reset(static_cast<uint64_t>(arm));
    EXPECT_EQ(play.Leaf(0), std::vector<float>{1});
    const Outcome outcome = play.Choose(arm);
    EXPECT_TRUE(outcome.terminated);
    EXPECT_EQ(outcome.reward, arm == 7 ? 1 : 0);
    EXPECT_EQ(play.Score(), arm == 7 ? 1 : 0);
  }
}

// The score of playing 0 with probability `p`, and the return.
std::pair<double, double> Mixture(double p) {
  Play play(MakeStochastic());
  Random random(3);
  play.Reset(1);
  std::vector<int64_t> played;
  double total = 0;
  for (int step = 1; step <= 500; ++step) {
    played.push_back(random.Uniform() < p ? 0 : 1);
    const Outcome outcome = play.Choose(played.back());
    const bool paid =
        step % 4 == 0 && std::count(played.end() - 4, played.end(), 0) == 3;
    EXPECT_EQ(outcome.reward, paid ? 1 : 0) << step;
    EXPECT_EQ(outcome.terminated, step == 500);
    EXPECT_EQ(play.Leaf(0), std::vector<float>{0});
    total += outcome.reward;
  }
  const double share = std::ranges::count(played, 0) / 500.0;
  const double off = (share - 0.75) / 0.25;
  const double score = play.Score();
  EXPECT_NEAR(score, std::max(0.0, 1 - off * off * off * off), 1e-12);
  return {score, total};
}

TEST(StochasticTest, OnlyTheMixtureScoresAndPays) {
  EXPECT_EQ(Mixture(1), std::pair(0.0, 0.0));
  EXPECT_EQ(Mixture(0), std::pair(0.0, 0.0));
  const auto [score, total] = Mixture(0.75);
  EXPECT_GT(score, 0.998);
  EXPECT_LT(Mixture(0.5).first, 0.2);
  EXPECT_LT(Mixture(0.5).second, total);
  EXPECT_LT(Mixture(0.95).first, 0.9);
  EXPECT_LT(Mixture(0.95).second, total);
}

TEST(PasswordTest, OneOfAllSequencesIsRight) {
  Play play(MakePassword());
  int right = 0;
  for (int64_t guess = 0; guess < 256; ++guess) {
    play.Reset(static_cast<uint64_t>(guess));
    std::vector<float> typed(8, 0);
    double total = 0;
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(play.Leaf(0), typed);
      const int64_t bit = guess >> i & 1;
      typed[i] = bit == 1 ? 1 : -1;
      const Outcome outcome = play.Choose(bit);
      EXPECT_EQ(outcome.terminated, i == 7);
      EXPECT_TRUE(i == 7 || outcome.reward == 0);
      total += outcome.reward;
    }
    EXPECT_EQ(play.Leaf(0), typed);
    EXPECT_EQ(play.Score(), total);
    right += total == 1 ? 1 : 0;
  }
  EXPECT_EQ(right, 1);
}

TEST(MemoryTest, TheCueIsShownOnceAndAskedForLater) {
  Play play(MakeMemory());
  std::vector<int> seen(4);
  for (uint64_t seed = 0; seed < 40; ++seed) {
    play.Reset(seed);
    const auto first = play.Leaf(0);
    const int64_t cue = std::ranges::find(first, 1) - first.begin();
    ASSERT_LT(cue, 4);
    ++seen[cue];
    for (int step = 0; step < 7; ++step) {
      // Answers that come too early are worth nothing.
      const Outcome early = play.Choose(cue);
      EXPECT_EQ(early.reward, 0);
      EXPECT_FALSE(early.terminated);
      const float asked = step == 6 ? 1 : 0;
      EXPECT_EQ(play.Leaf(0), (std::vector<float>{0, 0, 0, 0, asked}));
    }
    const int64_t answer = seed % 2 == 0 ? cue : (cue + 1) % 4;
    const Outcome outcome = play.Choose(answer);
    EXPECT_TRUE(outcome.terminated);
    EXPECT_EQ(outcome.reward, answer == cue ? 1 : 0);
    EXPECT_EQ(play.Score(), outcome.reward);
  }
  EXPECT_GT(*std::ranges::min_element(seen), 0);
}

TEST(SquaredTest, TargetsAreReachedOnceEachFromTheMiddle) {
  // Of 5 x 5, row by row: the moves to take twice, or one after the other, there.
  const auto moves = [](int cell) {
    const int dy = cell / 5 - 2, dx = cell % 5 - 2;
    const auto to = [](int y, int x) -> int64_t {
      constexpr int kNames[3][3] = {{7, 0, 1}, {6, -1, 2}, {5, 4, 3}};
      return kNames[y + 1][x + 1];
    };
    // Half of the way, away from the middle, and the rest.
    const int y = dy / 2 != 0 ? dy / 2 : 0, x = dx / 2 != 0 ? dx / 2 : 0;
    return std::pair(to(y, x), to(dy - y, dx - x));
  };
  Play play(MakeSquared());
  for (uint64_t seed = 0; seed < 20; ++seed) {
    play.Reset(seed);
    std::vector<float> grid = play.Leaf(0);
    EXPECT_EQ(std::ranges::count(grid, 1), 4);
    EXPECT_EQ(std::ranges::count(grid, 0), 20);
    EXPECT_EQ(grid[12], -1);
    std::vector<int> targets;
    for (int cell = 0; cell < 25; ++cell) {
      if (grid[cell] == 1) targets.push_back(cell);
    }
    // The last one is missed: the first is stepped on again instead.
    const bool again = seed % 2 == 1;
    if (again) targets.back() = targets.front();
    for (size_t i = 0; i < 4; ++i) {
      const auto [first, second] = moves(targets[i]);
      Outcome outcome = play.Choose(first);
      EXPECT_EQ(outcome.reward, 0);
      EXPECT_FALSE(outcome.terminated);
      EXPECT_EQ(play.Leaf(0)[12], 0);
      EXPECT_EQ(std::ranges::count(play.Leaf(0), -1), 1);
      outcome = play.Choose(second);
      EXPECT_EQ(outcome.reward, again && i == 3 ? 0 : 0.25f);
      EXPECT_EQ(outcome.terminated, i == 3);
      grid[targets[i]] = 0;
      EXPECT_EQ(play.Leaf(0), grid);
    }
    EXPECT_EQ(play.Score(), again ? 0.75 : 1);
  }
}

TEST(ContinuousTest, MovesAsItIsPushedAndEndsAtTheTargetOrOutside) {
  Play play(MakeContinuous());
  EXPECT_EQ(play.spec().max_episode_steps(), 50);
  int reached = 0, outside = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const bool steers = seed % 2 == 0;
    play.Reset(seed);
    std::vector<float> state = play.Leaf(0);
    EXPECT_EQ(state[2], 0);
    EXPECT_EQ(state[3], 0);
    for (int step = 0; step < 50; ++step) {
      std::vector<float> push(2, 3);  // more than there is: as 1
      if (steers) {
        for (int i : {0, 1}) push[i] = 0.6f * state[4 + i] - 4 * state[2 + i];
      }
      const Outcome outcome = play.Step<float>({push});
      const auto distance = [](const std::vector<float>& s) {
        return std::sqrt(s[4] * s[4] + s[5] * s[5]);
      };
      std::vector<float> next = state;
      bool out = false;
      for (int i : {0, 1}) {
        next[2 + i] += 0.1f * std::min(1.0f, std::max(-1.0f, push[i]));
        next[2 + i] = std::min(1.0f, std::max(-1.0f, next[2 + i]));
        next[i] += next[2 + i];
        out = out || std::abs(next[i]) > 1;
        next[i] = std::min(1.0f, std::max(-1.0f, next[i]));
        next[4 + i] = state[i] + state[4 + i] - next[i];
      }
      EXPECT_THAT(play.Leaf(0),
                  testing::Pointwise(testing::FloatNear(1e-5), next));
      const bool there = !out && distance(next) < 0.1;
      EXPECT_NEAR(
          outcome.reward,
          distance(state) - distance(next) + (there ? 1 : 0) - (out ? 1 : 0),
          1e-4);
      EXPECT_EQ(outcome.terminated, there || out);
      state = play.Leaf(0);
      if (!outcome.terminated) continue;
      reached += there ? 1 : 0;
      outside += out ? 1 : 0;
      EXPECT_EQ(play.Score(), there ? 1 : 0);
      break;
    }
  }
  EXPECT_EQ(reached + outside, 40);
  EXPECT_GE(reached, 20);  // whoever steers
  EXPECT_GE(outside, 10);
}

TEST(SpacesTest, BothAnswersHaveToBeRight) {
  Play play = MakeSpacesHiding("");
  for (uint64_t seed = 0; seed < 40; ++seed) {
    play.Reset(seed);
    const auto flags = play.Leaf(0), image = play.Leaf(1);
    const int64_t up = std::ranges::count(flags, 1) > 2 ? 1 : 0;
    double sum[4] = {};
    for (int i = 0; i < 36 * 36; ++i)
      sum[i / 648 * 2 + i % 36 / 18] += image[i];
    const int64_t bright = std::max_element(sum, sum + 4) - sum;
    const int64_t wrong = static_cast<int64_t>(seed % 4);
    const Outcome outcome = play.Step<int64_t>(
        {{wrong % 2 == 1 ? 1 - up : up}, {wrong >= 2 ? 3 - bright : bright}});
    EXPECT_TRUE(outcome.terminated);
    EXPECT_EQ(outcome.reward, wrong == 0 ? 1 : 0);
    EXPECT_EQ(play.Score(), outcome.reward);
  }
}

TEST(SpacesTest, AHiddenLeafIsBlank) {
  Play flags = MakeSpacesHiding("flags"), image = MakeSpacesHiding("image");
  flags.Reset(4);
  image.Reset(4);
  Play both = MakeSpacesHiding("");
  both.Reset(4);
  EXPECT_EQ(flags.Leaf(0), std::vector<float>(5, 0));
  EXPECT_EQ(flags.Leaf(1), both.Leaf(1));
  EXPECT_EQ(image.Leaf(0), both.Leaf(0));
  EXPECT_EQ(image.Leaf(1), std::vector<float>(36 * 36, 0));
  EXPECT_THAT(
      MakeSpaces("rgb"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("env.options.kwargs.hide is rgb, want flags")));
}

TEST(MaskTest, TheMaskTellsWhichOfTheCluesActionsIsRight) {
  for (const bool hide : {false, true}) {
    Play play(MakeMask(hide)), open(MakeMask(false));
    EXPECT_EQ(play.spec().action(0).mask_path(), "mask");
    for (uint64_t seed = 0; seed < 20; ++seed) {
      play.Reset(seed);
      open.Reset(seed);
      const bool sins =
          seed % 2 == 1;  // does what is forbidden, in the fourth step
      for (int step = 0; step < 8; ++step) {
        const auto clue = open.Leaf(0), mask = open.Leaf(1);
        EXPECT_EQ(play.Leaf(0), clue);
        EXPECT_EQ(play.Leaf(1), hide ? std::vector<float>(8, 1) : mask);
        const int64_t asked = std::ranges::find(clue, 1) - clue.begin();
        for (int i = 0; i < 4; ++i) EXPECT_EQ(mask[i] + mask[i + 4], 1);
        const int64_t right = mask[asked] == 1 ? asked : asked + 4;
        // An allowed action of another clue is no more than wrong.
        const int64_t other =
            mask[asked ^ 1] == 1 ? asked ^ 1 : (asked ^ 1) + 4;
        const int64_t action =
            sins && step == 3 ? (right + 4) % 8 : (step == 1 ? other : right);
        const Outcome outcome = play.Choose(action);
        open.Choose(action);
        EXPECT_EQ(outcome.reward, action == right ? 0.125f : 0);
        const bool over = step == 7 || (sins && step == 3);
        EXPECT_EQ(outcome.terminated, over);
        if (over) break;
      }
      EXPECT_EQ(play.Score(), (sins ? 2 : 7) / 8.0);
    }
  }
}

}  // namespace
}  // namespace flotilla
