#include "envserver/envs/connect4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/envserver/multi_agent_harness.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using Opponent = ConnectFourOpponent;

MultiAgentHarness Play(const std::string& opponent) {
  auto made = Connect4::Make(opponent);
  CHECK(made.ok()) << made.status();
  return MultiAgentHarness(*std::move(made));
}

// Whether four in a row lie somewhere, looked for cell by cell.
bool FourSomewhere(const ConnectFourBoard& board, int player) {
  for (int row = 0; row < 6; ++row) {
    for (int column = 0; column < 7; ++column) {
      for (const auto& [up, right] : {std::pair(0, 1), std::pair(1, 0),
                                      std::pair(1, 1), std::pair(-1, 1)}) {
        bool four = true;
        for (int i = 0; i < 4 && four; ++i) {
          const int r = row + i * up, c = column + i * right;
          four = r >= 0 && r < 6 && c < 7 && board.Has(player, r, c);
        }
        if (four) return true;
      }
    }
  }
  return false;
}

TEST(ConnectFourBoardTest, FourInARowAreFoundWhereverTheyAre) {
  Random random(1);
  int wins = 0, draws = 0;
  for (int game = 0; game < 3000; ++game) {
    ConnectFourBoard board;
    int player = 0;
    bool won = false;
    while (!won && !board.Full()) {
      const std::vector<int> moves = board.Moves();
      const int column = moves[random.Below(moves.size())];
      const bool would = board.Wins(player, column);
      won = board.Drop(player, column);
      EXPECT_EQ(won, would);
      EXPECT_EQ(won, FourSomewhere(board, player));
      EXPECT_FALSE(FourSomewhere(board, 1 - player));
      player = 1 - player;
    }
    ++(won ? wins : draws);
  }
  EXPECT_GT(draws, 3);
  EXPECT_GT(wins, 2900);
}

TEST(Connect4Test, SlotsTakeTurnsAndSeeTheBoardFromTheirSide) {
  MultiAgentHarness play = Play("");
  play.Reset(3);
  const size_t first = play.Turn();
  const std::vector<int64_t> moves = {3, 3, 0};
  for (size_t i = 0; i < moves.size(); ++i) {
    EXPECT_EQ(play.Turn(), i % 2 == 0 ? first : 1 - first);
    EXPECT_NE(play.slot(0).active, play.slot(1).active);
    play.Move(moves[i]);
  }
  EXPECT_FALSE(play.over());
  // The lowest row is the last of six.
  std::vector<float> begun(84, 0), other(84, 0);
  begun[35 + 3] = begun[35 + 0] = begun[42 + 28 + 3] = 1;
  other[28 + 3] = other[42 + 35 + 3] = other[42 + 35 + 0] = 1;
  EXPECT_EQ(play.Seen<float>(first), begun);
  EXPECT_EQ(play.Seen<float>(1 - first), other);
}

TEST(Connect4Test, WinnerAndLoserAreToldAtTheSameTime) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    MultiAgentHarness play = Play("");
    play.Reset(seed);
    const size_t first = play.Turn();
    for (const int64_t column : {0, 1, 0, 1, 0, 1}) play.Move(column);
    EXPECT_FALSE(play.over());
    play.Move(0);
    EXPECT_TRUE(play.slot(0).outcome.terminated);
    EXPECT_TRUE(play.slot(1).outcome.terminated);
    EXPECT_EQ(play.slot(first).outcome.reward, 1);
    EXPECT_EQ(play.slot(1 - first).outcome.reward, -1);
    play.Reset(seed);
    EXPECT_EQ(play.Metric(first, "score"), 1);
    EXPECT_EQ(play.Metric(1 - first, "score"), 0);
  }
}

TEST(Connect4Test, FullColumnsAreMaskedAndLose) {
  MultiAgentHarness play = Play("");
  play.Reset(0);
  const size_t first = play.Turn();
  EXPECT_THAT(play.Seen<uint8_t>(0, 1), Each(1));
  for (int i = 0; i < 6; ++i) play.Move(2);
  EXPECT_THAT(play.Seen<uint8_t>(first, 1), ElementsAre(1, 1, 0, 1, 1, 1, 1));
  EXPECT_EQ(play.Turn(), first);
  play.Move(2);
  EXPECT_TRUE(play.over());
  EXPECT_EQ(play.slot(first).outcome.reward, -1);
  EXPECT_EQ(play.slot(1 - first).outcome.reward, 1);
}

TEST(Connect4Test, FullBoardIsADraw) {
  MultiAgentHarness play = Play("");
  play.Reset(0);
  // Columns in an order in which nobody gets four: found by playing.
  Random random(1);
  for (int game = 0;; ++game) {
    ASSERT_LT(game, 5000);
    play.Reset(static_cast<uint64_t>(game));
    while (!play.over()) {
      const std::vector<uint8_t> mask = play.Seen<uint8_t>(play.Turn(), 1);
      int64_t column;
      do {
        column = static_cast<int64_t>(random.Below(7));
      } while (mask[column] == 0);
      play.Move(column);
    }
    const std::vector<float> board = play.Seen<float>(0);
    if (std::count(board.begin(), board.end(), 1.0f) < 42 ||
        play.slot(0).outcome.reward != 0) {
      continue;
    }
    EXPECT_EQ(play.slot(1).outcome.reward, 0);
    EXPECT_EQ(play.Metric(0, "score"), 0.5);
    return;
  }
}

TEST(Connect4Test, SeedSaysWhichSlotBegins) {
  MultiAgentHarness play = Play("");
  std::set<size_t> begins;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    play.Reset(seed);
    begins.insert(play.Turn());
    const size_t turn = play.Turn();
    play.Reset(seed);
    EXPECT_EQ(play.Turn(), turn);
  }
  EXPECT_EQ(begins.size(), 2u);
}

// Columns that `opponent` plays as player 0, over many seeds.
std::set<int> Choices(Opponent opponent, const ConnectFourBoard& board) {
  std::set<int> columns;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    columns.insert(ChooseColumn(opponent, board, 0, &random));
  }
  return columns;
}

TEST(ConnectFourOpponentTest, LooksAsFarAsItIsNamed) {
  // Stones of 0 and 1 on the floor; both could win in column 3.
  ConnectFourBoard both;
  for (const int column : {0, 1, 2}) both.Drop(1, column);
  for (const int column : {4, 5, 6}) both.Drop(0, column);
  EXPECT_EQ(Choices(Opponent::kRandom, both).size(), 7u);
  EXPECT_THAT(Choices(Opponent::kOnePly, both), ElementsAre(3));
  EXPECT_THAT(Choices(Opponent::kTwoPly, both), ElementsAre(3));

  ConnectFourBoard threat;
  for (const int column : {0, 1, 2}) threat.Drop(1, column);
  EXPECT_EQ(Choices(Opponent::kOnePly, threat).size(), 7u);
  EXPECT_THAT(Choices(Opponent::kTwoPly, threat), ElementsAre(3));

  // 1 would win in column 3, once somebody puts a stone under it.
  ConnectFourBoard poisoned;
  for (const int column : {4, 5, 6}) {
    poisoned.Drop(column == 5 ? 1 : 0, column);
    poisoned.Drop(1, column);
  }
  EXPECT_EQ(Choices(Opponent::kOnePly, poisoned).size(), 7u);
  EXPECT_THAT(Choices(Opponent::kTwoPly, poisoned),
              ElementsAre(0, 1, 2, 4, 5, 6));
}

// Share of 1000 games, begun in turn, that `a` wins against `b`; draws half.
double Strength(Opponent a, Opponent b) {
  const Opponent players[2] = {a, b};
  double won = 0;
  for (int game = 0; game < 1000; ++game) {
    Random random(static_cast<uint64_t>(game));
    ConnectFourBoard board;
    int turn = game % 2;
    for (;;) {
      const int column = ChooseColumn(players[turn], board, turn, &random);
      if (board.Drop(turn, column)) {
        won += turn == 0 ? 1 : 0;
        break;
      }
      if (board.Full()) {
        won += 0.5;
        break;
      }
      turn = 1 - turn;
    }
  }
  return won / 1000;
}

TEST(ConnectFourOpponentTest, WhoLooksFartherWins) {
  EXPECT_NEAR(Strength(Opponent::kRandom, Opponent::kRandom), 0.5, 0.06);
  EXPECT_GT(Strength(Opponent::kOnePly, Opponent::kRandom), 0.75);
  EXPECT_GT(Strength(Opponent::kTwoPly, Opponent::kOnePly), 0.75);
  EXPECT_GT(Strength(Opponent::kTwoPly, Opponent::kRandom), 0.9);
}

// What an episode of moves that follow `action_seed` showed and paid.
std::string Story(const std::string& opponent, uint64_t seed,
                  uint64_t action_seed) {
  MultiAgentHarness play = Play(opponent);
  Random random(action_seed);
  play.Reset(seed);
  std::string story;
  do {
    for (const float cell : play.Seen<float>(0)) absl::StrAppend(&story, cell);
    absl::StrAppend(&story, "|");
    play.Move(static_cast<int64_t>(random.Below(7)));
  } while (!play.over());
  absl::StrAppend(&story, play.slot(0).outcome.reward);
  return story;
}

TEST(Connect4Test, GamesFollowTheSeedAndTheMoves) {
  for (const std::string opponent : {"", "random", "one_ply", "two_ply"}) {
    EXPECT_EQ(Story(opponent, 1, 7), Story(opponent, 1, 7));
    bool differs = false;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      differs = differs || Story(opponent, seed, 7) != Story(opponent, 1, 7);
    }
    EXPECT_EQ(differs, true) << opponent;
  }
}

TEST(Connect4Test, AgainstAnOpponentThereIsOneAgentWhoseTurnItAlwaysIs) {
  MultiAgentHarness play = Play("two_ply");
  EXPECT_EQ(play.environment().spec().agents(), 1);
  std::set<float> begun, ends;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    play.Reset(seed);
    float stones = 0;
    for (const float cell : play.Seen<float>(0)) stones += cell;
    begun.insert(stones);
    while (!play.over()) {
      EXPECT_TRUE(play.slot(0).active);
      EXPECT_EQ(play.slot(0).outcome.reward, 0);
      std::vector<float> board = play.Seen<float>(0);
      const float own = std::count(board.begin(), board.begin() + 42, 1.0f);
      const float others = std::count(board.begin() + 42, board.end(), 1.0f);
      EXPECT_EQ(others - own, stones);
      const std::vector<uint8_t> mask = play.Seen<uint8_t>(0, 1);
      int64_t column;
      do {
        column = static_cast<int64_t>(random.Below(7));
      } while (mask[column] == 0);
      play.Move(column);
    }
    const float reward = play.slot(0).outcome.reward;
    ends.insert(reward);
    // Asked for once the next game has begun, with the opponent's move or not.
    play.Reset(seed + 1);
    EXPECT_EQ(play.Metric(0, "score"), (reward + 1) / 2);
  }
  EXPECT_EQ(begun, (std::set<float>{0, 1}));
  EXPECT_TRUE(ends.contains(-1));
}

TEST(Connect4Test, AnotherOpponentIsRefused) {
  EXPECT_THAT(Connect4::Make("three_ply"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("kwargs.opponent is \"three_ply\", want "
                                 "random, one_ply or two_ply")));
}

}  // namespace
}  // namespace flotilla
