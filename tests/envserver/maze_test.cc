#include "envserver/envs/maze.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "tests/envserver/environment_harness.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

EnvironmentHarness MakeMaze(int size, int view) {
  v1::MazeOptions options;
  options.set_size(size);
  options.set_view(view);
  auto env = Maze::Make(options);
  CHECK(env.ok()) << env.status();
  return EnvironmentHarness(*std::move(env));
}

// The whole maze, seen at the start through a view that reaches everywhere.
std::vector<std::vector<bool>> WholeMaze(int size, uint64_t seed) {
  EnvironmentHarness env = MakeMaze(size, 2 * size - 1);
  env.Reset(seed);
  const auto seen = env.Observation<float>();
  std::vector<std::vector<bool>> wall(size, std::vector<bool>(size));
  const int view = 2 * size - 1, reach = size - 1;
  for (int y = 0; y < size; ++y) {
    for (int x = 0; x < size; ++x) {
      wall[y][x] = seen[(y - 1 + reach) * view + x - 1 + reach] == 1;
    }
  }
  return wall;
}

constexpr std::pair<int, int> kMoves[] = {{-1, 0}, {0, 1}, {1, 0}, {0, -1}};

// The moves of a shortest way, found breadth first.
std::vector<int> Solve(const std::vector<std::vector<bool>>& wall) {
  const int goal = static_cast<int>(wall.size()) - 2;
  std::queue<std::tuple<int, int, std::vector<int>>> queue;
  std::set<std::pair<int, int>> seen = {{1, 1}};
  queue.push({1, 1, {}});
  while (!queue.empty()) {
    const auto [y, x, moves] = queue.front();
    queue.pop();
    if (y == goal && x == goal) return moves;
    for (int i = 0; i < 4; ++i) {
      const int to_y = y + kMoves[i].first, to_x = x + kMoves[i].second;
      if (wall[to_y][to_x] || !seen.insert({to_y, to_x}).second) continue;
      auto longer = moves;
      longer.push_back(i);
      queue.push({to_y, to_x, longer});
    }
  }
  ADD_FAILURE() << "there is no way";
  return {};
}

TEST(MazeTest, EveryMazeHasExactlyOneWayBetweenCells) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto wall = WholeMaze(9, seed);
    int cells = 0, passages = 0;
    for (int y = 0; y < 9; ++y) {
      for (int x = 0; x < 9; ++x) {
        EXPECT_TRUE((y % 8 != 0 && x % 8 != 0) || wall[y][x]);
        if (wall[y][x]) continue;
        ++cells;
        passages += !wall[y + 1][x] + !wall[y][x + 1];
      }
    }
    // A tree: connected (Solve fails otherwise), with one edge less than nodes.
    EXPECT_EQ(passages, cells - 1);
    EXPECT_EQ(cells, 16 + 15);
    EXPECT_GE(Solve(wall).size(), 12u);
  }
}

TEST(MazeTest, TheWayLeadsToTheGoalAndItsReward) {
  EnvironmentHarness env = MakeMaze(9, 3);
  env.Reset(4);
  const std::vector<int> moves = Solve(WholeMaze(9, 4));
  for (size_t i = 0; i < moves.size(); ++i) {
    const Outcome outcome = env.Step<int64_t>(moves[i]);
    const bool last = i + 1 == moves.size();
    EXPECT_EQ(outcome.terminated, last);
    EXPECT_EQ(outcome.reward, last ? 1 : 0);
  }
  EXPECT_EQ(env.Observation<float>()[9 + 4], 1);  // on the goal
  v1::EpisodeEnd end;
  env.Reset(5);
  EXPECT_TRUE(env.environment().GameOver(&end));
  EXPECT_EQ(end.metric().at("success"), 1);
  EXPECT_EQ(end.metric().at("spl"), 1);
}

TEST(MazeTest, SplIsTheShortestWayOverTheWayTaken) {
  EnvironmentHarness env = MakeMaze(9, 3);
  EXPECT_THAT(env.environment().spec().episode_metric(),
              ElementsAre("spl", "success"));
  env.Reset(4);
  const std::vector<int> moves = Solve(WholeMaze(9, 4));
  for (int i = 0; i < 6; ++i) env.Step<int64_t>(0);  // into the wall
  for (int move : moves) env.Step<int64_t>(move);
  env.Reset(5);
  v1::EpisodeEnd end;
  EXPECT_TRUE(env.environment().GameOver(&end));
  EXPECT_DOUBLE_EQ(end.metric().at("spl"), moves.size() / (moves.size() + 6.0));
  // An episode that does not get there has none.
  env.Step<int64_t>(0);
  env.Reset(6);
  EXPECT_TRUE(env.environment().GameOver(&end));
  EXPECT_EQ(end.metric().at("spl"), 0);
  EXPECT_EQ(end.metric().at("success"), 0);
}

TEST(MazeTest, WallsHoldAndTheViewIsAroundTheAgent) {
  EnvironmentHarness env = MakeMaze(5, 3);
  env.Reset(1);
  const auto before = env.Observation<float>();
  EXPECT_THAT(std::vector<float>(before.begin(), before.begin() + 4),
              ElementsAre(1, 1, 1, 1));  // the corner
  EXPECT_EQ(before[4], 0);
  env.Step<int64_t>(0);
  env.Step<int64_t>(3);
  EXPECT_EQ(env.Observation<float>(), before);
  v1::EpisodeEnd end;
  EXPECT_TRUE(env.environment().GameOver(&end));
  EXPECT_EQ(end.metric().at("success"), 0);
}

TEST(MazeTest, MazesFollowTheSeed) {
  EXPECT_EQ(WholeMaze(9, 1), WholeMaze(9, 1));
  EXPECT_NE(WholeMaze(9, 1), WholeMaze(9, 2));
}

TEST(MazeTest, OptionsOutOfRangeAreRefusedByName) {
  v1::MazeOptions options;
  options.set_size(8);
  EXPECT_THAT(Maze::Make(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("env.options.maze.size is 8, want an odd")));
  options.set_size(3);
  EXPECT_THAT(Maze::Make(options),
              StatusIs(absl::StatusCode::kInvalidArgument));
  options.set_size(5);
  options.set_episode_steps(0);
  EXPECT_THAT(Maze::Make(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("episode_steps is 0, want 1 to")));
}

}  // namespace
}  // namespace flotilla
