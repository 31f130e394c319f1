#include "launcher/watch/watch_view.h"

#include <google/protobuf/text_format.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/text_layout.h"
#include "launcher/watch/terminal.h"

namespace flotilla {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// As `flotilla status --json` of two learners on CartPole has it, shortened.
v1::Status Training() {
  v1::Status status;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        run_id: "cartpole"
        state: ACTIVE
        generation: 2
        world_size: 2
        uptime_seconds: 65
        epoch: "e"
        global_step: 250000
        update: 61
        steps_per_second: 5000
        mean_return: 187.34
        learner_restarts: 1
        fence_reason: "rank 1 (learner/0/1) sent no heartbeat for 5.0 s"
        waiting_for: "rank 1 (learner/0/1) in STEPPING for 3.2 s"
        change { number: 1 override: "ppo.epochs=2" update: 31 }
        learner {
          rank: 0
          id: "learner/0/0"
          host: "n1"
          device: "cpu"
          state: "alive"
          phase: COLLECTIVE
          phase_seconds: 3.1
          update: 61
          steps_per_second: 2600
          waits_for: "the other ranks"
          env_worker {
            id: "rank_0_0"
            host: "n1"
            num_envs: 8
            state: "playing"
            steps_per_second: 2600
            pid: 11
          }
        }
        learner {
          rank: 1
          id: "learner/0/1"
          host: "n1"
          device: "cpu"
          state: "alive"
          phase: STEPPING
          phase_seconds: 3.2
          update: 61
          steps_per_second: 2400
          waits_for: "environments"
          restarts: 1
          failed_rows: 3
          trouble: "env worker 0 is restarted"
          env_worker {
            id: "rank_1_0"
            num_envs: 8
            state: "restarting"
            restarts: 2
          }
        }
      )pb",
      &status));
  return status;
}

// A letter for the style, then the line.
std::string Screen(const WatchView& view, size_t columns, size_t rows) {
  std::string text;
  for (const ScreenLine& line : view.Render(columns, rows)) {
    text += "\n";
    text += " TBDAC"[static_cast<int>(line.style)];
    text += line.text.empty() ? "" : "|" + line.text;
  }
  return text + "\n";
}

TEST(WatchViewTest, AScreen) {
  WatchView view(/*utf8=*/true);
  v1::Status status = Training();
  for (const double mean : {20.0, 40.0, 90.0, 187.34}) {
    status.set_update(status.update() + 1);
    status.set_mean_return(mean);
    view.Take(status);
  }
  view.SetLog({"first", "I1122 a.cc:1] last \x1b[2Jline"});
  EXPECT_EQ(Screen(view, 100, 20), R"(
T|run cartpole  active  generation 2  world 2  up 1m05s
B|250,000 steps  update 65  5.0k steps/s  return 187.3  1 learner restarts
 |return   ▁▁▄█ 20 to 187
 |steps/s  ▁▁▁▁ 5.0k to 5.0k
D|change 1: ppo.epochs=2, from update 31 on
A|rank 1: env worker 0 is restarted
A|the last generation ended: rank 1 (learner/0/1) sent no heartbeat for 5.0 s
 |waiting: rank 1 (learner/0/1) in STEPPING for 3.2 s
B|learner*  host  device  phase       for  update  steps/s  workers  failed  restarts  waits for
C|+ rank 0  n1    cpu     collective   3s      61     2.6k  1/1                        the other ranks
A|+ rank 1  n1    cpu     stepping     3s      61     2.4k  0/1           3         1  environments
B|log of rank 0
D|first
D|I1122 a.cc:1] last \x1b[2Jline
 
 
 
 
 
D|q quit  s sort (rank)  up/down choose  enter workers  l log  S stop
)");
}

TEST(WatchViewTest, ChoosingSortingAndExpanding) {
  WatchView view(/*utf8=*/false);
  view.Take(Training());
  EXPECT_EQ(view.LogRank(), 0);
  view.Press(kKeyDown);
  EXPECT_EQ(view.LogRank(), 1);
  view.Press(kKeyDown);  // there is no other
  EXPECT_EQ(view.LogRank(), 1);
  EXPECT_THAT(Screen(view, 100, 20), HasSubstr("\nC|+ rank 1"));
  EXPECT_THAT(Screen(view, 100, 20), Not(HasSubstr("rank_1_0")));
  view.Press(kKeyEnter);
  EXPECT_THAT(Screen(view, 110, 20), HasSubstr("\nC|- rank 1 "));
  EXPECT_THAT(Screen(view, 110, 20), HasSubstr("\nA|    rank_1_0 "));
  view.Press(kKeyEnter);
  EXPECT_THAT(Screen(view, 110, 20), Not(HasSubstr("rank_1_0")));
  // By speed, the slowest comes first; who was chosen stays chosen.
  view.Press('s');
  const std::string slowest = Screen(view, 110, 20);
  EXPECT_LT(slowest.find("+ rank 1"), slowest.find("+ rank 0"));
  EXPECT_THAT(slowest, HasSubstr("\nC|+ rank 1"));
  EXPECT_THAT(slowest, HasSubstr("steps/s*"));
}

TEST(WatchViewTest, StoppingIsAskedOnceMore) {
  WatchView view(true);
  view.Take(Training());
  EXPECT_EQ(view.Press('S'), WatchView::Wish::kNothing);
  EXPECT_THAT(Screen(view, 80, 20),
              HasSubstr("\nA|save a checkpoint and stop"));
  EXPECT_EQ(view.Press('n'), WatchView::Wish::kNothing);
  EXPECT_EQ(view.Press('y'), WatchView::Wish::kNothing);
  view.Press('S');
  EXPECT_EQ(view.Press('y'), WatchView::Wish::kStop);
  EXPECT_EQ(view.Press('q'), WatchView::Wish::kQuit);
}

TEST(WatchViewTest, SilenceIsSaid) {
  WatchView view(true);
  view.Take(Training());
  view.SetSilence("the coordinator has not answered for 12s");
  EXPECT_THAT(Screen(view, 80, 20),
              HasSubstr("\nA|the coordinator has not answered for 12s"));
}

// Whatever the size, nothing is drawn beside the screen.
TEST(WatchViewTest, EveryScreenFits) {
  v1::Status status = Training();
  for (int rank = 2; rank < 200; ++rank) {
    v1::LearnerStatus* learner = status.add_learner();
    *learner = status.learner(0);
    learner->set_rank(rank);
    learner->set_id(absl::StrCat("learner/0/", rank));
    learner->set_host("höst");
  }
  WatchView view(true);
  view.Take(status);
  view.Take(status);
  view.SetLog({"a", "b", "c"});
  for (const int key : std::vector<int>{0, kKeyEnd, 's', ' ', 'S'}) {
    view.Press(key);
    for (const size_t columns : {1, 20, 80, 300}) {
      for (const size_t rows : {1, 2, 5, 9, 24, 500}) {
        const auto screen = view.Render(columns, rows);
        EXPECT_EQ(screen.size(), rows);
        for (const ScreenLine& line : screen) {
          EXPECT_LE(Characters(line.text), columns);
        }
      }
    }
  }
}

TEST(WatchViewTest, WhatWasChosenStaysInSight) {
  v1::Status status = Training();
  for (int rank = 2; rank < 200; ++rank) {
    v1::LearnerStatus* learner = status.add_learner();
    learner->set_rank(rank);
    learner->set_id(absl::StrCat("learner/0/", rank));
  }
  WatchView view(true);
  view.Take(status);
  view.Press(kKeyEnd);
  EXPECT_THAT(Screen(view, 100, 30), HasSubstr("\nC|+ rank 199"));
  view.Press(kKeyHome);
  EXPECT_THAT(Screen(view, 100, 30), HasSubstr("\nC|+ rank 0"));
  EXPECT_THAT(Screen(view, 100, 30), HasSubstr(" more"));
}

TEST(SparklineTest, BarsAreAsHighAsTheirValues) {
  EXPECT_EQ(Sparkline({0, 1, 2, 3, 4, 5, 6, 7}, 8, true), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(Sparkline({-1, 0, 1}, 2, false), "_#");
  EXPECT_EQ(Sparkline({5, 5}, 10, true), "▁▁");
  EXPECT_EQ(Sparkline({}, 10, true), "");
  EXPECT_EQ(Sparkline({1, NAN, 2}, 3, false), "__#");
}

TEST(CodeOfTest, NoColorIsHeeded) {
  const std::string red = "\x1b[31m", bold = "\x1b[1m";
  unsetenv("NO_COLOR");
  EXPECT_EQ(CodeOf(ScreenLine::Style::kAlarm), red);
  setenv("NO_COLOR", "", 1);  // as if it were not there
  EXPECT_EQ(CodeOf(ScreenLine::Style::kAlarm), red);
  setenv("NO_COLOR", "1", 1);
  EXPECT_EQ(CodeOf(ScreenLine::Style::kAlarm), bold);
  EXPECT_EQ(CodeOf(ScreenLine::Style::kBold), bold);
  unsetenv("NO_COLOR");
}

TEST(ParseKeysTest, SequencesLettersAndHalves) {
  std::string bytes = "q\x1b[A\x1b[6~\r\x1b[99X\x1b[";
  EXPECT_THAT(ParseKeys(&bytes),
              ElementsAre('q', kKeyUp, kKeyPageDown, kKeyEnter));
  EXPECT_EQ(bytes, "\x1b[");
  bytes += "B";
  EXPECT_THAT(ParseKeys(&bytes), ElementsAre(kKeyDown));
  bytes = "\x1b";
  EXPECT_THAT(ParseKeys(&bytes), ElementsAre(kKeyEscape));
}

}  // namespace
}  // namespace flotilla
