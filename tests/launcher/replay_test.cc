#include "launcher/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>

#include "launcher/film.h"
#include "launcher/video.h"
#include "services/base/run_folder.h"
#include "services/env/recorded_games.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Games of one agent in which a step is a byte.
v1::RecordedGames Games(int64_t round = 0) {
  v1::RecordedGames games;
  games.set_env_id("Mine");
  games.set_agents(1);
  games.set_round(round);
  games.add_action()->set_dtype(v1::UINT8);
  return games;
}

v1::RecordedGame* Add(v1::RecordedGames* games, double score, int steps,
                      const std::string& kept_as = "") {
  v1::RecordedGame* game = games->add_game();
  if (!kept_as.empty()) game->add_kept_as(kept_as);
  game->set_score(score);
  v1::GameSlot* slot = game->add_slot();
  slot->set_ended(true);
  slot->set_raw_return(score);
  slot->set_length(steps);
  v1::RecordedEpisode* episode = game->add_episode();
  episode->set_seed(1);
  episode->set_steps(steps);
  episode->add_action(std::string(static_cast<size_t>(steps), 'a'));
  return game;
}

class GameAlbumTest : public testing::Test {
 protected:
  GameAlbumTest() {
    std::filesystem::create_directories(run_.episodes());
    WriteFile(run_.metrics(), "");
  }
  void Write(const std::string& path, const v1::RecordedGames& games) {
    ASSERT_OK(WriteGames(path, games));
  }
  double Score(const GameAlbum& album, const std::string& which) {
    const auto place = album.Find(which);
    EXPECT_OK(place);
    return place.ok() ? place->game->score() : -1;
  }

  TempDir folder_;
  const RunFolder run_{folder_.path()};
};

TEST_F(GameAlbumTest, FindsGamesByWhatTheyAre) {
  v1::RecordedGames training = Games();
  Add(&training, 9, 3, "best");
  Add(&training, 1, 3, "worst");
  Add(&training, 5, 3, "newest")->set_number(7);
  Add(&training, 4, 3, "newest")->set_number(8);
  Write(run_.training_games(), training);
  for (const int64_t round : {2, 11}) {
    v1::RecordedGames games = Games(round);
    Add(&games, static_cast<double>(20 * round), 2);
    Add(&games, static_cast<double>(30 * round), 2);
    Add(&games, static_cast<double>(90 * round), 2)
        ->set_end(v1::RecordedGame::CRASHED);
    Write(run_.evaluation_games(round), games);
  }
  ASSERT_OK_AND_ASSIGN(const GameAlbum album, GameAlbum::Read(folder_.path()));
  EXPECT_EQ(Score(album, "best"), 9);
  EXPECT_EQ(Score(album, "worst"), 1);
  EXPECT_EQ(Score(album, "newest"), 4);
  EXPECT_EQ(Score(album, "evaluation"), 330);
  EXPECT_EQ(Score(album, "evaluation:2"), 60);
  EXPECT_EQ(Score(album, "2"), 1);
  ASSERT_EQ(album.All().size(), 10u);
  EXPECT_EQ(album.All()[4].Title(), "evaluation 11");
  for (const std::string which : {"median", "0", "11", "evaluation:3",
                                  "evaluation:", "evaluationx", "", "bes"}) {
    EXPECT_THAT(
        album.Find(which),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("--episode is \"" + which + "\""),
                       HasSubstr("this run has best, worst, newest, evaluation,"
                                 " evaluation:11 and 1 to 10"))));
  }
}

TEST_F(GameAlbumTest, SaysWhatAFolderIsInstead) {
  EXPECT_THAT(GameAlbum::Read(folder_ / "nowhere"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is no run's folder")));
  EXPECT_THAT(GameAlbum::Read(folder_.path()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has no game to see again")));
  Write(run_.training_games(), Games());
  EXPECT_THAT(GameAlbum::Read(folder_.path()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has no game to see again")));
  WriteFile(run_.evaluation_games(3), "x");
  EXPECT_THAT(GameAlbum::Read(folder_.path()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("evaluation_000003.games cannot be played")));
}

// What a server answers that plays `steps` steps of an episode, and then ends it.
class Answers {
 public:
  Answers(const v1::RecordedGames& games, const v1::RecordedGame& game)
      : check_(games, game) {}

  Answers& Steps(int count, bool ends) {
    v1::ReplayStep step;
    step.set_episode(episode_);
    EXPECT_OK(check_.Take(step));
    for (int t = 1; t <= count; ++t) {
      step.set_step(t);
      step.set_terminated(std::string(1, ends && t == count ? '\1' : '\0'));
      step.set_truncated(std::string(1, '\0'));
      EXPECT_OK(check_.Take(step));
      last_ = step;
    }
    ++episode_;
    return *this;
  }
  Answers& Last(double raw_return, int64_t length) {
    return Change([&](v1::ReplayStep* step) {
      v1::EpisodeEnd* end = step->add_episode_end();
      end->set_raw_return(raw_return);
      end->set_length(length);
    });
  }
  Answers& Failed(const std::string& why) {
    return Change([&](v1::ReplayStep* step) { step->set_error(why); });
  }
  std::string Difference(bool lost = false) {
    return check_.Finish(lost).difference;
  }

 private:
  // One more step.
  template <typename F>
  Answers& Change(F change) {
    v1::ReplayStep step = last_;
    step.set_step(last_.step() + 1);
    change(&step);
    step.set_terminated(std::string(1, step.error().empty() ? '\1' : '\0'));
    EXPECT_OK(check_.Take(step));
    return *this;
  }

  ReplayCheck check_;
  int episode_ = 0;
  v1::ReplayStep last_;
};

TEST(GameToJsonTest, AnEnvironmentsOwnMetricsReplaceNoneOfOurs) {
  v1::RecordedGames games = Games();
  v1::GameSlot* slot = Add(&games, 9, 3)->mutable_slot(0);
  (*slot->mutable_metric())["return"] = -1;
  (*slot->mutable_metric())["steps"] = -1;
  (*slot->mutable_metric())["success"] = 0.5;
  const GameAlbum album = GameAlbum::Of(std::move(games));
  const Json json = GameToJson(album.All().at(0));
  EXPECT_EQ(json.at("return").get<double>(), 9);
  EXPECT_EQ(json.at("steps").get<double>(), 3);
  EXPECT_EQ(json.at("success").get<double>(), 0.5);
}

TEST(ReplayCheckTest, SaysInWhatAGameIsAnother) {
  v1::RecordedGames games = Games();
  const v1::RecordedGame game = *Add(&games, 7, 4);
  const auto played = [&] { return Answers(games, game); };
  EXPECT_EQ(played().Steps(3, false).Last(7, 4).Difference(), "");
  EXPECT_EQ(played().Steps(3, false).Last(6, 4).Difference(),
            "the return is 6 over 4 steps, and was 7 over 4");
  EXPECT_EQ(played().Steps(3, false).Last(7, 3).Difference(),
            "the return is 7 over 3 steps, and was 7 over 4");
  EXPECT_EQ(played().Steps(2, true).Difference(),
            "an episode ended at step 2 of 4");
  EXPECT_EQ(played().Steps(4, false).Difference(),
            "it goes on after step 4 of 4");
  EXPECT_EQ(played().Steps(1, false).Failed("broke").Difference(),
            "it failed at step 2 of 4: broke");
  EXPECT_EQ(played().Steps(4, true).Difference(),
            "the return is 0 over 0 steps, and was 7 over 4");
  EXPECT_EQ(played().Steps(2, false).Difference(/*lost=*/true),
            "it failed at step 2 of 4: its server ended");
}

TEST(ReplayCheckTest, AFailureIsToComeAgainWhereItWas) {
  v1::RecordedGames games = Games();
  v1::RecordedGame* const game = Add(&games, 7, 4);
  game->set_end(v1::RecordedGame::CRASHED);
  game->set_error("broke");
  const auto played = [&] { return Answers(games, *game); };
  EXPECT_EQ(played().Steps(3, false).Failed("again").Difference(), "");
  EXPECT_EQ(played().Steps(3, false).Difference(/*lost=*/true), "");
  EXPECT_EQ(played().Steps(1, false).Failed("again").Difference(),
            "it failed at step 2 of 4: again");
  EXPECT_EQ(played().Steps(4, false).Difference(),
            "it did not fail, as it had (broke)");
}

TEST(ReplayCheckTest, LivesFollowOneAnother) {
  v1::RecordedGames games = Games();
  v1::RecordedGame* const game = Add(&games, 7, 2);
  *game->add_episode() = game->episode(0);
  EXPECT_EQ(Answers(games, *game)
                .Steps(2, true)
                .Steps(1, false)
                .Last(7, 2)
                .Difference(),
            "");
  EXPECT_EQ(Answers(games, *game).Steps(2, true).Steps(1, true).Difference(),
            "an episode ended at step 1 of 2 of episode 2 of 2");
  EXPECT_EQ(Answers(games, *game).Steps(2, false).Difference(),
            "it goes on after step 2 of 2 of episode 1 of 2");
}

TEST(ReplayCheckTest, RefusesAnswersThatBreakTheProtocol) {
  v1::RecordedGames games = Games();
  const v1::RecordedGame game = *Add(&games, 7, 4);
  v1::ReplayStep step;
  step.set_step(1);
  EXPECT_THAT(ReplayCheck(games, game).Take(step),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("answers step")));
  ReplayCheck check(games, game);
  EXPECT_OK(check.Take(v1::ReplayStep()));
  EXPECT_THAT(check.Take(step),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("of 0 slots")));
}

TEST(VideoTest, PathsAreCheckedBeforeAnythingStarts) {
  const TempDir folder;
  for (const std::string name : {"a.mp4", "b.WEBP", "c.gif"}) {
    EXPECT_OK(CheckVideoPath(folder / name));
  }
  EXPECT_OK(CheckVideoPath("a.mp4"));
  EXPECT_THAT(CheckVideoPath(folder / "a.avi"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("ends in .mp4, .webp or .gif")));
  EXPECT_THAT(CheckVideoPath(folder / "nowhere/a.mp4"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("there is no folder")));
}

}  // namespace
}  // namespace flotilla
