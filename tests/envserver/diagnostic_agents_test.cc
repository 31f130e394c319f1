#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "envserver/envs/diagnostic.h"
#include "services/base/random.h"
#include "tests/envserver/multi_agent_harness.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::HasSubstr;

TEST(MultiagentTest, EachHasToDoWhatIsWrongForTheOther) {
  MultiAgentHarness play(MakeMultiagent());
  for (const auto& [first, second] :
       {std::pair(0, 1), std::pair(1, 0), std::pair(1, 1), std::pair(0, 0)}) {
    play.Reset(1);
    EXPECT_EQ(play.Seen<float>(0), std::vector<float>{0});
    EXPECT_EQ(play.Seen<float>(1), std::vector<float>{1});
    EXPECT_TRUE(play.slot(0).active && play.slot(1).active);
    play.Step({first, second});
    EXPECT_EQ(play.slot(0).outcome.reward, first == 0 ? 1 : 0);
    EXPECT_EQ(play.slot(1).outcome.reward, second == 1 ? 1 : 0);
    EXPECT_TRUE(play.slot(0).outcome.terminated);
    EXPECT_TRUE(play.slot(1).outcome.terminated);
    play.Reset(2);
    EXPECT_EQ(play.Metric(0, "score"), first == 0 ? 1 : 0);
    EXPECT_EQ(play.Metric(1, "score"), second == 1 ? 1 : 0);
  }
}

MultiAgentHarness PlaySelfplay(const std::string& opponent) {
  auto made = MakeSelfplay(opponent);
  CHECK(made.ok()) << made.status();
  return MultiAgentHarness(*std::move(made));
}

int64_t Left(const MultiAgentHarness& play) {
  const std::vector<float> seen = play.Seen<float>(play.Turn());
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1.0f), 1);
  return std::find(seen.begin(), seen.end(), 1.0f) - seen.begin();
}

TEST(SelfplayTest, WhoTakesTheLastStoneWinsAndTheOtherLoses) {
  MultiAgentHarness play = PlaySelfplay("");
  EXPECT_EQ(play.environment().spec().agents(), 2);
  std::set<std::pair<size_t, int64_t>> begins;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    play.Reset(seed);
    int64_t left = Left(play);
    begins.insert({play.Turn(), left});
    EXPECT_NE(left % 4, 0);
    size_t last = 0;
    while (!play.over()) {
      last = play.Turn();
      const auto taken = static_cast<int64_t>(1 + random.Below(3));
      play.Move(taken - 1);
      left = std::max<int64_t>(0, left - taken);
      if (play.over()) break;
      EXPECT_EQ(Left(play), left);
      EXPECT_EQ(play.Turn(), 1 - last);
      EXPECT_EQ(play.slot(0).outcome.reward, 0);
    }
    EXPECT_EQ(left, 0);
    EXPECT_EQ(play.slot(last).outcome.reward, 1);
    EXPECT_EQ(play.slot(1 - last).outcome.reward, -1);
    EXPECT_TRUE(play.slot(1 - last).outcome.terminated);
    play.Reset(seed);
    EXPECT_EQ(play.Metric(last, "score"), 1);
    EXPECT_EQ(play.Metric(1 - last, "score"), 0);
  }
  EXPECT_EQ(begins.size(), 2u * 13);  // of 5 to 21, without multiples of 4
}

TEST(SelfplayTest, OnlyWhoMakesNoMistakeBeatsTheBest) {
  MultiAgentHarness play = PlaySelfplay("best");
  EXPECT_EQ(play.environment().spec().agents(), 1);
  for (const bool well : {true, false}) {
    int won = 0;
    for (uint64_t seed = 0; seed < 500; ++seed) {
      Random random(seed);
      play.Reset(seed);
      while (!play.over()) {
        const int64_t best = Left(play) % 4;
        play.Move(well ? best - 1 : static_cast<int64_t>(random.Below(3)));
      }
      play.Reset(seed);
      won += static_cast<int>(play.Metric(0, "score"));
    }
    if (well) {
      EXPECT_EQ(won, 500);
    } else {
      EXPECT_LT(won, 75);
    }
  }
}

TEST(SelfplayTest, AnotherOpponentIsRefused) {
  EXPECT_THAT(MakeSelfplay("good"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("kwargs.opponent is \"good\", want best")));
}

}  // namespace
}  // namespace flotilla
