#include "services/env/recorded_games.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

v1::EnvSpec Spec() {
  v1::EnvSpec spec;
  v1::Leaf* column = spec.add_action();
  column->set_path("column");
  column->set_dtype(v1::INT64);
  column->set_num_values(7);
  v1::Leaf* force = spec.add_action();
  force->set_path("force");
  force->set_dtype(v1::FLOAT32);
  force->add_shape(2);
  spec.set_agents(2);
  return spec;
}

// One game of three steps.
v1::RecordedGames Games() {
  v1::EnvConfig env;
  env.set_id("Mine");
  (*env.mutable_options()->mutable_kwargs())["size"] = "3";
  v1::RecordedGames games = GamesOf(env, Spec());
  v1::RecordedGame* game = games.add_game();
  game->add_kept_as("best");
  game->add_slot();
  game->add_slot();
  v1::RecordedEpisode* episode = game->add_episode();
  episode->set_seed(99);
  episode->set_steps(3);
  episode->add_action(std::string("\1\2\3\4\5\6", 6));
  episode->add_action(std::string(3 * 2 * 2 * sizeof(float), 'x'));
  return games;
}

class RecordedGamesTest : public testing::Test {
 protected:
  void ExpectRefused(const std::string& content, const std::string& why) {
    WriteFile(path_, content);
    EXPECT_THAT(ReadGames(path_),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         testing::AllOf(HasSubstr(path_), HasSubstr(why))));
  }
  void ExpectRefused(const v1::RecordedGames& games, const std::string& why) {
    ASSERT_OK(WriteGames(path_, games));
    ExpectRefused(ReadFile(path_), why);
  }

  TempDir folder_;
  const std::string path_ = folder_ / "training.games";
};

TEST_F(RecordedGamesTest, ReadsWhatItWrote) {
  ASSERT_OK(WriteGames(path_, Games()));
  ASSERT_OK_AND_ASSIGN(const v1::RecordedGames read, ReadGames(path_));
  EXPECT_EQ(read.SerializeAsString(), Games().SerializeAsString());
  EXPECT_EQ(StepsOf(read.game(0)), 3);
}

TEST_F(RecordedGamesTest, ReplaysAreSentActionsAsTheyTravel) {
  const v1::RecordedGames games = Games();
  const v1::ReplayRequest request =
      ReplayOf(games, games.game(0), /*frames=*/true);
  EXPECT_EQ(request.env_id(), "Mine");
  EXPECT_EQ(request.options().kwargs().at("size"), "3");
  EXPECT_TRUE(request.frames());
  ASSERT_EQ(request.episode_size(), 1);
  EXPECT_EQ(request.episode(0).seed(), 99u);
  std::string wide;
  for (const char value : {1, 2, 3, 4, 5, 6}) {
    wide += value + std::string(7, '\0');
  }
  EXPECT_EQ(request.episode(0).action(0), wide);
  EXPECT_EQ(request.episode(0).action(1), games.game(0).episode(0).action(1));
}

TEST_F(RecordedGamesTest, AByteIsEnoughForUpTo256Values) {
  v1::Leaf leaf;
  leaf.set_dtype(v1::INT64);
  EXPECT_EQ(RecordedAs(leaf).bytes, 8u);  // any integer
  leaf.set_num_values(256);
  EXPECT_EQ(RecordedAs(leaf).bytes, 1u);
  leaf.set_num_values(257);
  EXPECT_EQ(RecordedAs(leaf).bytes, 8u);
  leaf.set_num_values(0);
  leaf.add_shape(2);
  leaf.add_num_values_each(3);
  leaf.add_num_values_each(256);
  EXPECT_EQ(RecordedAs(leaf).bytes, 1u);
  EXPECT_EQ(RecordedAs(leaf).elements, 2u);
  leaf.set_num_values_each(1, 1000);
  EXPECT_EQ(RecordedAs(leaf).bytes, 8u);
}

TEST_F(RecordedGamesTest, SaysWhatIsWrongWithAFile) {
  EXPECT_THAT(ReadGames(path_), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK(WriteGames(path_, Games()));
  const std::string good = ReadFile(path_);
  ExpectRefused("", "no file of recorded games");
  ExpectRefused("{\"env_id\": 3}", "no file of recorded games");
  ExpectRefused("flotilla games 2\n" + good.substr(17),
                "version \"2\", and this program reads 1");
  for (size_t size = 17; size < good.size(); size += 7) {
    ExpectRefused(good.substr(0, size), "cut, or was changed");
  }
  std::string changed = good;
  changed[good.size() - 5] ^= 1;
  ExpectRefused(changed, "cut, or was changed");
}

// The sum is right, and what is in it is not.
TEST_F(RecordedGamesTest, BelievesNoLengths) {
  v1::RecordedGames games = Games();
  games.set_agents(0);
  ExpectRefused(games, "agents is 0");
  games = Games();
  games.set_agents(3);
  ExpectRefused(games, "2 slots, want 1 or more and 3");
  games = Games();
  games.mutable_game(0)->clear_episode();
  ExpectRefused(games, "0 episodes");
  games = Games();
  games.mutable_game(0)->mutable_episode(0)->set_steps(int64_t{1} << 62);
  ExpectRefused(games, "are not those of");
  // 2 agents * 2^22 elements * 4 bytes * 2^39 steps: 2^64 bytes, and none there.
  games = Games();
  games.mutable_action()->DeleteSubrange(0, 1);
  games.mutable_action(0)->set_shape(0, 1 << 22);
  games.mutable_game(0)->mutable_episode(0)->set_steps(int64_t{1} << 39);
  games.mutable_game(0)->mutable_episode(0)->clear_action();
  games.mutable_game(0)->mutable_episode(0)->add_action();
  ExpectRefused(games, "are not those of 549755813888 steps");
  games = Games();
  games.mutable_game(0)->mutable_episode(0)->mutable_action()->RemoveLast();
  ExpectRefused(games, "are not those of 3 steps");
  games = Games();
  games.mutable_action(0)->add_shape(-5);
  ExpectRefused(games, "shape");
}

TEST_F(RecordedGamesTest, FindsARunsEvaluations) {
  const RunFolder run(folder_.path());
  EXPECT_TRUE(EvaluationsIn(run).empty());
  std::filesystem::create_directories(run.episodes());
  for (const int64_t round : {12, 3, 1234567}) {
    ASSERT_OK(WriteGames(run.evaluation_games(round), Games()));
  }
  WriteFile(run.episodes() + "/evaluation_x.games", "");
  WriteFile(run.training_games(), "");
  EXPECT_THAT(EvaluationsIn(run), ElementsAre(3, 12, 1234567));
}

}  // namespace
}  // namespace flotilla
