#include "learner/actor/game_tapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "services/base/random.h"

namespace flotilla {
namespace {

using testing::ElementsAre;

constexpr uint64_t kSeed = 11, kWorker = 4, kIncarnation = 7;

v1::EnvSpec Spec(int agents = 1, int64_t num_values = 3) {
  v1::EnvSpec spec;
  v1::Leaf* action = spec.add_action();
  action->set_dtype(v1::INT64);
  action->set_num_values(num_values);
  spec.set_agents(agents);
  return spec;
}

struct Sink final : GameSink {
  void Take(int64_t env, v1::RecordedGame* game) override {
    envs.push_back(env);
    games.emplace_back().Swap(game);
  }
  std::vector<int64_t> envs;
  std::vector<v1::RecordedGame> games;
};

std::string Columns(const std::vector<int64_t>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(int64_t));
}

v1::StepBatch Step() { return v1::StepBatch(); }

// `row`'s episode has ended, and with it, unless `goes_on`, its game.
v1::StepBatch End(int row, double raw_return, bool goes_on = false) {
  v1::StepBatch batch;
  batch.add_final_row(row);
  if (goes_on) return batch;
  v1::EpisodeEnd* end = batch.add_episode_end();
  end->set_row(row);
  end->set_raw_return(raw_return);
  end->set_length(3);
  (*end->mutable_metric())["success"] = 1;
  return batch;
}

v1::StepBatch Failure(int row, uint64_t episode, const std::string& why,
                      bool unusable = false) {
  v1::StepBatch batch;
  v1::RowError* error = batch.add_error();
  error->set_row(row);
  error->set_message(why);
  error->set_episode(episode);
  error->set_unusable(unusable);
  return batch;
}

class GameTapesTest : public testing::Test {
 protected:
  // Two slots of four rows.
  GameTapes Make(const v1::EnvSpec& spec, int64_t max_bytes = 1 << 20,
                 int opponent_slots = 0) {
    return GameTapes({.sink = &sink_,
                      .max_bytes = max_bytes,
                      .opponent_slots = opponent_slots},
                     spec, kSeed, /*slots=*/2, /*rows=*/4);
  }
  void Begin(GameTapes* tapes) {
    for (const int slot : {0, 1}) {
      tapes->Began(slot, /*group=*/slot, kWorker, kIncarnation, Step());
    }
  }
  static uint64_t SeedOf(int row, uint64_t episode) {
    return EpisodeSeed(kSeed, kWorker, row, kIncarnation, episode);
  }
  static void Act(GameTapes* tapes, int slot,
                  const std::vector<int64_t>& values) {
    const std::string columns[] = {Columns(values)};
    tapes->Acted(slot, columns);
  }

  Sink sink_;
};

TEST_F(GameTapesTest, AGameIsItsSeedAndItsActions) {
  GameTapes tapes = Make(Spec());
  Begin(&tapes);
  Act(&tapes, 1, {0, 1, 2, 0});
  tapes.Stepped(1, Step());
  Act(&tapes, 1, {0, 2, 2, 0});
  tapes.Stepped(1, End(/*row=*/1, 5));
  ASSERT_EQ(sink_.games.size(), 1u);
  EXPECT_THAT(sink_.envs, ElementsAre(5));  // of both slots
  const v1::RecordedGame& game = sink_.games[0];
  ASSERT_EQ(game.episode_size(), 1);
  EXPECT_EQ(game.episode(0).seed(), SeedOf(/*row=*/5, /*episode=*/0));
  EXPECT_EQ(game.episode(0).steps(), 2);
  EXPECT_EQ(game.episode(0).action(0), "\1\2");
  EXPECT_EQ(game.score(), 5);
  EXPECT_EQ(game.end(), v1::RecordedGame::OVER);
  EXPECT_EQ(game.slot(0).raw_return(), 5);
  EXPECT_EQ(game.slot(0).length(), 3);
  EXPECT_EQ(game.slot(0).metric().at("success"), 1);
  EXPECT_EQ(game.worker_id(), kWorker);
  EXPECT_EQ(game.incarnation(), kIncarnation);
  EXPECT_EQ(game.row(), 5);

  // The next one begins where this one ended.
  Act(&tapes, 1, {0, 1, 2, 0});
  tapes.Stepped(1, End(/*row=*/1, 6));
  ASSERT_EQ(sink_.games.size(), 2u);
  EXPECT_EQ(sink_.games[1].episode(0).seed(), SeedOf(5, 1));
  EXPECT_EQ(sink_.games[1].episode(0).action(0), "\1");
}

TEST_F(GameTapesTest, LivesAreEpisodesOfOneGame) {
  GameTapes tapes = Make(Spec());
  Begin(&tapes);
  Act(&tapes, 0, {1, 0, 0, 0});
  tapes.Stepped(0, End(0, 0, /*goes_on=*/true));
  Act(&tapes, 0, {2, 0, 0, 0});
  tapes.Stepped(0, Step());
  Act(&tapes, 0, {2, 0, 0, 0});
  tapes.Stepped(0, End(0, 9));
  ASSERT_EQ(sink_.games.size(), 1u);
  const v1::RecordedGame& game = sink_.games[0];
  ASSERT_EQ(game.episode_size(), 2);
  EXPECT_EQ(game.episode(0).action(0), "\1");
  EXPECT_EQ(game.episode(1).seed(), SeedOf(0, 1));
  EXPECT_EQ(game.episode(1).steps(), 2);
  EXPECT_EQ(game.episode(1).action(0), "\2\2");
}

TEST_F(GameTapesTest, AFailedGameGoesOnWhereTheServerSays) {
  GameTapes tapes = Make(Spec());
  Begin(&tapes);
  Act(&tapes, 0, {1, 1, 1, 1});
  tapes.Stepped(0, Failure(2, /*episode=*/0, "broke"));  // pending
  Act(&tapes, 0, {1, 1, 2, 1});                          // ignored
  tapes.Stepped(0, Failure(2, 0, ""));
  Act(&tapes, 0, {1, 1, 2, 1});
  tapes.Stepped(0, Failure(2, /*episode=*/5, ""));  // it is back
  Act(&tapes, 0, {1, 1, 0, 1});
  tapes.Stepped(0, Failure(2, /*episode=*/6, "the reward is nan", true));
  ASSERT_EQ(sink_.games.size(), 2u);
  EXPECT_EQ(sink_.games[0].end(), v1::RecordedGame::CRASHED);
  EXPECT_EQ(sink_.games[0].error(), "broke");
  EXPECT_EQ(sink_.games[0].episode(0).action(0), "\1");
  EXPECT_EQ(sink_.games[1].end(), v1::RecordedGame::UNUSABLE);
  EXPECT_EQ(sink_.games[1].episode(0).seed(), SeedOf(2, 5));
  EXPECT_EQ(sink_.games[1].episode(0).action(0), std::string(1, '\0'));
}

TEST_F(GameTapesTest, WithoutAWordFromTheServerNothingIsKnownUntilItIsAnew) {
  GameTapes tapes = Make(Spec());
  Begin(&tapes);
  Act(&tapes, 0, {1, 1, 1, 1});
  tapes.Stepped(0, Failure(0, 0, "broke"));
  Act(&tapes, 0, {1, 1, 1, 1});
  tapes.Stepped(0, End(0, 1));
  EXPECT_EQ(sink_.games.size(), 1u);  // the one that failed
  tapes.Began(0, 0, kWorker, kIncarnation + 1, Step());
  Act(&tapes, 0, {1, 1, 1, 1});
  tapes.Stepped(0, End(0, 1));
  ASSERT_EQ(sink_.games.size(), 2u);
  EXPECT_EQ(sink_.games[1].episode(0).seed(),
            EpisodeSeed(kSeed, kWorker, 0, kIncarnation + 1, 0));
}

TEST_F(GameTapesTest, OfALostWorkerTheGamesThatWaitedForItAreHandedOn) {
  GameTapes tapes = Make(Spec());
  Begin(&tapes);
  Act(&tapes, 0, {1, 1, 1, 1});
  tapes.Stepped(0, Step());
  Act(&tapes, 0, {2, 2, 2, 2});
  tapes.Lost(0, 2, "signal 9");
  ASSERT_EQ(sink_.games.size(), size_t{GameTapes::kMostLost});
  for (const v1::RecordedGame& game : sink_.games) {
    EXPECT_EQ(game.end(), v1::RecordedGame::CRASHED);
    EXPECT_EQ(game.error(), "signal 9");
    EXPECT_EQ(game.episode(0).action(0), "\1\2");
  }
}

TEST_F(GameTapesTest, AGameIsOverWhenAllItsAgentsAre) {
  GameTapes tapes = Make(Spec(/*agents=*/2), 1 << 20, /*opponent_slots=*/1);
  Begin(&tapes);
  Act(&tapes, 0, {0, 0, 1, 2});
  v1::StepBatch first = End(2, -1);
  first.mutable_episode_end(0)->set_others_play_on(true);
  tapes.Stepped(0, first);
  EXPECT_TRUE(sink_.games.empty());
  Act(&tapes, 0, {0, 0, 0, 1});
  tapes.Stepped(0, End(3, 4));
  ASSERT_EQ(sink_.games.size(), 1u);
  const v1::RecordedGame& game = sink_.games[0];
  EXPECT_THAT(sink_.envs, ElementsAre(1));
  EXPECT_EQ(game.episode(0).seed(), SeedOf(2, 0));
  EXPECT_EQ(game.episode(0).action(0), (std::string{1, 2, 0, 1}));
  EXPECT_EQ(game.slot(0).raw_return(), -1);
  EXPECT_EQ(game.slot(1).raw_return(), 4);
  // Of environment 1 the opponent's slot is 1.
  EXPECT_EQ(game.score(), -1);
}

TEST_F(GameTapesTest, ContinuousActionsAreTheirBytes) {
  v1::EnvSpec spec;
  v1::Leaf* force = spec.add_action();
  force->set_dtype(v1::FLOAT32);
  GameTapes tapes({.sink = &sink_, .max_bytes = 100}, spec, kSeed, 1, 1);
  tapes.Began(0, 0, kWorker, kIncarnation, Step());
  const std::string columns[] = {"abcd"};
  tapes.Acted(0, columns);
  tapes.Stepped(0, End(0, 1));
  ASSERT_EQ(sink_.games.size(), 1u);
  EXPECT_EQ(sink_.games[0].episode(0).action(0), "abcd");
}

TEST_F(GameTapesTest, AGameThatIsTooLongIsForgottenAndTheNextIsKnown) {
  GameTapes tapes = Make(Spec(), /*max_bytes=*/10);
  Begin(&tapes);
  for (int i = 0; i < 5000; ++i) {
    Act(&tapes, 0, {1, 1, 1, 1});
    tapes.Stepped(0, i == 2000 ? End(0, 0, /*goes_on=*/true) : Step());
  }
  Act(&tapes, 0, {1, 1, 1, 1});
  tapes.Stepped(0, End(0, 0));
  EXPECT_TRUE(sink_.games.empty());
  Act(&tapes, 0, {2, 1, 1, 1});
  tapes.Stepped(0, End(0, 0));
  ASSERT_EQ(sink_.games.size(), 1u);
  EXPECT_EQ(sink_.games[0].episode(0).seed(), SeedOf(0, 2));
  EXPECT_EQ(sink_.games[0].episode(0).action(0), "\2");
}

TEST_F(GameTapesTest, AGameOfVeryManyEpisodesIsTooLong) {
  GameTapes tapes = Make(Spec(), /*max_bytes=*/1000);
  Begin(&tapes);
  for (int i = 0; i < 20; ++i) {
    Act(&tapes, 0, {1, 1, 1, 1});
    tapes.Stepped(0, End(0, 0, /*goes_on=*/true));
  }
  Act(&tapes, 0, {1, 1, 1, 1});
  tapes.Stepped(0, End(0, 0));
  EXPECT_TRUE(sink_.games.empty());
  Act(&tapes, 0, {2, 1, 1, 1});
  tapes.Stepped(0, End(0, 0));
  ASSERT_EQ(sink_.games.size(), 1u);
  EXPECT_EQ(sink_.games[0].episode(0).seed(), SeedOf(0, 21));
}

int64_t ResidentBytes() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Of servers that never say that one is over.
TEST_F(GameTapesTest, AGameThatNobodyIsHandedDoesNotGrow) {
  v1::StepBatch all_end;
  for (const int row : {0, 1, 2, 3}) all_end.add_final_row(row);
  const std::string columns[] = {Columns({1, 1, 1, 1})};
  for (const bool wanted : {false, true}) {
    SCOPED_TRACE(wanted);
    GameTapes tapes = Make(Spec(), /*max_bytes=*/10);
    if (!wanted) tapes.set_sink(nullptr);
    Begin(&tapes);
    const int64_t before = ResidentBytes();
    for (int i = 0; i < 200000; ++i) {
      tapes.Acted(0, columns);
      tapes.Stepped(0, all_end);
    }
    // Kept, its episodes would take about 100 MB.
    EXPECT_LT(ResidentBytes() - before, 20'000'000);
  }
}

// Only rank 0's games are kept, which another may become.
TEST_F(GameTapesTest, CountsAlongWhileNobodyWantsThem) {
  GameTapes tapes = Make(Spec());
  tapes.set_sink(nullptr);
  Begin(&tapes);
  for (int i = 0; i < 3; ++i) {
    Act(&tapes, 0, {1, 1, 1, 1});
    tapes.Stepped(0, End(0, i));
  }
  tapes.set_sink(&sink_);
  Act(&tapes, 0, {1, 1, 1, 1});
  tapes.Stepped(0, End(0, 3));  // began before
  Act(&tapes, 0, {2, 1, 1, 1});
  tapes.Stepped(0, End(0, 4));
  ASSERT_EQ(sink_.games.size(), 1u);
  EXPECT_EQ(sink_.games[0].episode(0).seed(), SeedOf(0, 4));
  EXPECT_EQ(sink_.games[0].score(), 4);
}

}  // namespace
}  // namespace flotilla
