#include "learner/training/kept_games.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "learner/training/game_keeper.h"
#include "services/env/recorded_games.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

v1::RecordedGame Game(uint64_t seed, double score,
                      v1::RecordedGame::End end = v1::RecordedGame::OVER) {
  v1::RecordedGame game;
  game.set_score(score);
  game.set_end(end);
  game.add_slot();
  v1::RecordedEpisode* episode = game.add_episode();
  episode->set_seed(seed);
  episode->set_steps(1);
  episode->add_action("\1");
  return game;
}

// The seeds of what is kept as what, the newest first.
std::map<std::string, std::vector<uint64_t>> Seeds(v1::RecordedGames games) {
  std::map<std::string, std::vector<uint64_t>> seeds;
  std::sort(
      games.mutable_game()->begin(), games.mutable_game()->end(),
      [](const auto& a, const auto& b) { return a.number() > b.number(); });
  for (const v1::RecordedGame& game : games.game()) {
    for (const std::string& as : game.kept_as()) {
      seeds[as].push_back(game.episode(0).seed());
    }
  }
  return seeds;
}

v1::RecordedGames All(const KeptGames& kept) {
  v1::RecordedGames games;
  kept.AddTo(&games);
  return games;
}

void Take(KeptGames* kept, v1::RecordedGame game) { kept->Take(&game); }

TEST(KeptGamesTest, BestWorstAndNewest) {
  KeptGames kept(/*newest=*/2);
  EXPECT_EQ(All(kept).game_size(), 0);
  for (const auto& [seed, score] :
       std::map<uint64_t, double>{{1, 5}, {2, 9}, {3, 1}, {4, 9}, {5, 1}}) {
    Take(&kept, Game(seed, score));
  }
  auto seeds = Seeds(All(kept));
  EXPECT_THAT(seeds["best"], ElementsAre(2));
  EXPECT_THAT(seeds["worst"], ElementsAre(3));
  EXPECT_THAT(seeds["median"], ElementsAre(1));
  EXPECT_THAT(seeds["newest"], ElementsAre(5, 4));
}

TEST(KeptGamesTest, AGameIsThereOnceWhateverItIs) {
  KeptGames kept(2);
  Take(&kept, Game(1, 5));
  const v1::RecordedGames games = All(kept);
  ASSERT_EQ(games.game_size(), 1);
  EXPECT_THAT(games.game(0).kept_as(),
              ElementsAre("best", "median", "worst", "newest"));
}

double MedianScore(const KeptGames& kept) {
  const v1::RecordedGames games = All(kept);
  for (const v1::RecordedGame& game : games.game()) {
    for (const std::string& as : game.kept_as()) {
      if (as == "median") return game.score();
    }
  }
  return -1;
}

TEST(KeptGamesTest, TheMedianFollowsWhatIsLearnt) {
  KeptGames kept(1);
  uint64_t seed = 0;
  for (int i = 0; i < 1000; ++i) Take(&kept, Game(++seed, i % 11));
  EXPECT_EQ(MedianScore(kept), 5);
  for (int i = 0; i < 1000; ++i) Take(&kept, Game(++seed, 100 + i % 11));
  EXPECT_EQ(MedianScore(kept), 105);
}

TEST(KeptGamesTest, FailuresAreKeptApartTheNewestFour) {
  KeptGames kept(1);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Take(&kept, Game(seed, 0, v1::RecordedGame::CRASHED));
    Take(&kept, Game(10 + seed, 0, v1::RecordedGame::UNUSABLE));
  }
  auto seeds = Seeds(All(kept));
  EXPECT_THAT(seeds["crashed"], ElementsAre(6, 5, 4, 3));
  EXPECT_THAT(seeds["unusable"], ElementsAre(16, 15, 14, 13));
  EXPECT_THAT(seeds["best"], IsEmpty());
}

TEST(KeptGamesTest, NoneOfTheNewestIfNoneIsAskedFor) {
  KeptGames kept(0);
  Take(&kept, Game(1, 5));
  Take(&kept, Game(2, 5));
  EXPECT_THAT(Seeds(All(kept))["newest"], IsEmpty());
}

TEST(KeptGamesTest, GoesOnWithWhatWasWritten) {
  KeptGames before(3);
  for (uint64_t seed = 1; seed <= 9; ++seed) {
    Take(&before, Game(seed, static_cast<double>(seed % 5)));
    Take(&before, Game(100 + seed, 0, v1::RecordedGame::CRASHED));
  }
  KeptGames after(3);
  after.Restore(All(before));
  EXPECT_EQ(Seeds(All(after)), Seeds(All(before)));
  Take(&after, Game(10, 3));
  EXPECT_THAT(Seeds(All(after))["newest"], ElementsAre(10, 9, 8));
}

v1::RecordedGames Header(const std::string& env_id) {
  v1::RecordedGames games;
  games.set_env_id(env_id);
  games.set_agents(1);
  v1::Leaf* action = games.add_action();
  action->set_dtype(v1::UINT8);
  return games;
}

TEST(GameKeeperTest, WritesWhatIsLeftWhenItEndsAndGoesOnWithIt) {
  const TempDir folder;
  const std::string path = folder / "episodes/training.games";
  {
    GameKeeper keeper(path, Header("Mine"), 4);
    keeper.Passed(1234);
    v1::RecordedGame game = Game(1, 5);
    keeper.Take(0, &game);
  }
  ASSERT_OK_AND_ASSIGN(v1::RecordedGames games, ReadGames(path));
  ASSERT_EQ(games.game_size(), 1);
  EXPECT_EQ(games.env_id(), "Mine");
  EXPECT_EQ(games.game(0).global_step(), 1234);
  {
    GameKeeper keeper(path, Header("Mine"), 4);
    v1::RecordedGame game = Game(2, 4);
    keeper.Take(0, &game);
  }
  ASSERT_OK_AND_ASSIGN(games, ReadGames(path));
  EXPECT_THAT(Seeds(games)["best"], ElementsAre(1));
  EXPECT_THAT(Seeds(games)["newest"], ElementsAre(2, 1));
}

TEST(GameKeeperTest, BeginsAnewWhereAnotherGameWasPlayedOrNothingCanBeRead) {
  const TempDir folder;
  const std::string path = folder / "training.games";
  for (const std::string env_id : {"One", "Other"}) {
    GameKeeper keeper(path, Header(env_id), 4);
    v1::RecordedGame game = Game(env_id.size(), 5);
    keeper.Take(0, &game);
  }
  ASSERT_OK_AND_ASSIGN(v1::RecordedGames games, ReadGames(path));
  EXPECT_EQ(games.game_size(), 1);
  EXPECT_EQ(games.env_id(), "Other");
  WriteFile(path, "flotilla games 1\nx");
  {
    GameKeeper keeper(path, Header("One"), 4);
    v1::RecordedGame game = Game(3, 5);
    keeper.Take(0, &game);
  }
  EXPECT_OK(ReadGames(path));
}

TEST(GameKeeperTest, AFolderThatCannotBeWrittenEndsNothing) {
  const TempDir folder;
  WriteFile(folder / "file", "");
  GameKeeper keeper(folder / "file/training.games", Header("One"), 4);
  v1::RecordedGame game = Game(1, 5);
  keeper.Take(0, &game);
}

}  // namespace
}  // namespace flotilla
