#include "launcher/progress.h"

#include <google/protobuf/text_format.h>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

v1::Status Parse(const std::string& text) {
  v1::Status status;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &status));
  return status;
}

v1::Status Training() {
  return Parse(R"pb(
    run_id: "r"
    state: ACTIVE
    generation: 2
    world_size: 2
    global_step: 250000
    update: 61
    steps_per_second: 5000
    mean_return: 187.34
    uptime_seconds: 65
    version: "0.1.0"
    evaluation { round: 3 update: 60 mean_return: 401.25 episodes: 10 }
    learner {
      rank: 0
      host: "n1"
      device: "cpu"
      state: "alive"
      phase: LEARNING
      update: 61
      steps_per_second: 2600
    }
    learner {
      rank: 1
      host: "n2"
      device: "cpu"
      state: "suspect"
      update: 61
      steps_per_second: 2400
      waits_for: "rank 0"
      restarts: 1
      env_worker {
        id: "env/1/0"
        num_envs: 4
        state: "playing"
        assigned_rank: 1
        restarts: 2
      }
    })pb");
}

const ProgressFacts kFacts = {.name = "run", .total_env_steps = 500000};

TEST(ProgressTest, ALineHasEverything) {
  EXPECT_EQ(ProgressLine(Training(), kFacts),
            " 50%  250,000 / 500,000 steps  update 61  5.0k steps/s  ETA 50s  "
            "return 187.3  eval 401.2");
}

TEST(ProgressTest, BeforeTheFirstStepALineSaysWhatIsWaitedFor) {
  const v1::Status status =
      Parse("state: GATHERING waiting_for: \"1 more learner\"");
  EXPECT_EQ(ProgressLine(status, kFacts),
            "  0%  0 / 500,000 steps  waiting: 1 more learner  update 0");
}

TEST(ProgressTest, TheLengthIsWhatItWasChangedToInFlight) {
  v1::Status status = Training();
  v1::Change* change = status.add_change();
  change->set_update(40);
  change->add_override("total_env_steps=1000000");
  EXPECT_THAT(ProgressLine(status, kFacts),
              StartsWith(" 25%  250,000 / 1,000"));
  change = status.add_change();
  change->set_update(50);
  change->add_override("total_updates=100");
  EXPECT_THAT(ProgressLine(status, kFacts),
              StartsWith(" 25%  250,000 / 1,000"));
  ProgressFacts facts = kFacts;
  facts.steps_an_update = 5000;
  EXPECT_THAT(ProgressLine(status, facts), StartsWith(" 50%  250,000 / 500,"));
}

TEST(ProgressTest, ABlockHasALineForEachRank) {
  const std::vector<std::string> block = ProgressBlock(Training(), kFacts, 200);
  EXPECT_THAT(
      block,
      ElementsAre(
          "run [############------------]  50%  250.0k/500.0k steps",
          "  5.0k steps/s  ETA 50s  return 187.3  eval 401.2",
          "  rank 0   n1         cpu  learning    update 61        2.6k/s",
          "  rank 1   n2         cpu  suspect     update 61        2.4k/s"
          "  waits for rank 0"));
}

// As real learners fill it.
v1::Status Wide() {
  v1::Status status = Training();
  status.set_run_id("breakout_ppo-20261122-235959");
  status.set_fence_reason(
      "learner/1/0 (rank 1 on a-host-with-a-rather-long-name): no heartbeat "
      "for "
      "5.0 s");
  for (v1::LearnerStatus& learner : *status.mutable_learner()) {
    learner.set_host("a-host-with-a-rather-long-name");
    learner.set_device("cuda:0 GPU-01234567-89ab-cdef-0123-456789abcdef");
    learner.set_state("alive");
    learner.set_phase(v1::STEPPING);
    learner.set_waits_for("env worker 3");
    learner.set_pid(1234567);
    learner.set_restarts(2);
    learner.set_trouble(
        "checkpoint of update 120 was not written: cannot write "
        "checkpoints/step_000000015360: No space left on device; the one "
        "before still stands");
  }
  return status;
}

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

TEST(ProgressTest, NoLineIsWiderThanTheTerminal) {
  EXPECT_THAT(ProgressBlock(Training(), kFacts, 30),
              Each(SizeIs(testing::Le(30))));
  EXPECT_THAT(ProgressBlock(Wide(), kFacts, 79), Each(SizeIs(testing::Le(79))));
  EXPECT_THAT(Lines(StatusText(Training(), 80)), Each(SizeIs(testing::Le(80))));
  EXPECT_THAT(Lines(StatusText(Wide(), 80)), Each(SizeIs(testing::Le(80))));
}

TEST(ProgressTest, ALineIsCutBetweenCharacters) {
  v1::Status status = Training();
  status.mutable_learner(0)->set_trouble("ééééééééé");
  EXPECT_EQ(ProgressBlock(status, kFacts, 9)[3], "      ééé");
}

TEST(ProgressTest, AWrappedStatusSaysAllOfIt) {
  const auto words = [](size_t width) {
    return std::vector<std::string>(absl::StrSplit(
        StatusText(Wide(), width), absl::ByAnyChar(" \n"), absl::SkipEmpty()));
  };
  EXPECT_EQ(words(80), words(100000));
  EXPECT_EQ(words(20), words(100000));
}

TEST(ProgressTest, OneHostNeedsNoNameInABlock) {
  const std::vector<std::string> block = ProgressBlock(Wide(), kFacts, 79);
  EXPECT_EQ(block[2],
            "  rank 0   cuda:0  stepping    update 61        2.6k/s  waits for "
            "env worker 3");
}

// A block is erased by counting its lines.
TEST(ProgressTest, TroubleHasALineOfItsOwn) {
  const std::vector<std::string> block = ProgressBlock(Wide(), kFacts, 200);
  ASSERT_THAT(block, SizeIs(6));
  EXPECT_THAT(block, Each(Not(HasSubstr("\n"))));
  EXPECT_THAT(block[3], HasSubstr("No space left on device"));
}

TEST(ProgressTest, AStrangersWordsMoveNoCursor) {
  v1::Status status = Wide();
  status.mutable_learner(0)->set_trouble("\x1b[2Jgone\r\n");
  EXPECT_THAT(ProgressBlock(status, kFacts, 200), Each(Not(HasSubstr("\x1b"))));
  EXPECT_THAT(StatusText(status, 80), Not(HasSubstr("\x1b")));
}

TEST(ProgressTest, WhatThereIsNotYetIsLeftOut) {
  v1::Status status = Parse(R"pb(
    state: ACTIVE
    global_step: 512
    learner { rank: 0 device: "cpu" state: "alive" phase: STEPPING })pb");
  EXPECT_EQ(ProgressLine(status, kFacts),
            "  0%  512 / 500,000 steps  update 0");
  const std::vector<std::string> block = ProgressBlock(status, kFacts, 79);
  EXPECT_EQ(block.back(), "  rank 0   cpu  stepping    update 0     ");
  EXPECT_THAT(StatusText(status, 80), Not(HasSubstr("/s")));
  status.set_mean_return(-0.3);
  EXPECT_THAT(ProgressLine(status, kFacts), HasSubstr("return -0.3"));
}

TEST(ProgressTest, ManyRanksAreCutShort) {
  v1::Status status;
  for (int i = 0; i < 100; ++i) status.add_learner()->set_rank(i);
  const std::vector<std::string> block = ProgressBlock(status, kFacts, 80);
  EXPECT_THAT(block, SizeIs(19));
  EXPECT_EQ(block.back(), "  and 84 more");
}

TEST(ProgressTest, StatusTextNamesLearnersWorkersAndEvaluation) {
  const std::string text = StatusText(Training(), 200);
  EXPECT_THAT(text,
              HasSubstr("run r  active  generation 2  world 2  up 1m05s"));
  EXPECT_THAT(text, HasSubstr("evaluation 3 of update 60: mean return 401.2"));
  EXPECT_THAT(text, HasSubstr("learners: 2"));
  EXPECT_THAT(text, HasSubstr("env/1/0"));
  EXPECT_THAT(text, HasSubstr("1 restarts"));
}

TEST(ProgressTest, AFileGetsPlainLines) {
  std::FILE* file = std::tmpfile();
  EXPECT_EQ(ChooseProgressMode("auto", file), ProgressMode::kPlain);
  EXPECT_EQ(ChooseProgressMode("none", file), ProgressMode::kNone);
  std::fclose(file);
}

TEST(ProgressTest, AResumedRunBeginsWhereItWas) {
  const TempDir temp;
  std::FILE* file = std::fopen((temp / "out").c_str(), "w");
  {
    ProgressPrinter printer(ProgressMode::kPlain,
                            {.name = "run",
                             .total_env_steps = 500000,
                             .first_step = 400000,
                             .first_update = 98},
                            file);
    printer.Show(Parse("state: GATHERING"), absl::UnixEpoch());
  }
  std::fclose(file);
  EXPECT_EQ(ReadFile(temp / "out"),
            " 80%  400,000 / 500,000 steps  gathering  update 98\n");
}

class PrinterTest : public testing::Test {
 protected:
  std::string Print(ProgressMode mode) {
    std::FILE* file = std::fopen((temp_ / "out").c_str(), "w");
    {
      ProgressPrinter printer(mode, kFacts, file);
      printer.Say("hello");
      printer.Show(Training(), absl::UnixEpoch());
      printer.Show(Training(), absl::UnixEpoch());  // too early to show again
      printer.Say("news");
      printer.Finish(Training());
    }
    std::fclose(file);
    return ReadFile(temp_ / "out");
  }

  TempDir temp_;
};

TEST_F(PrinterTest, PlainPrintsALineNowAndThen) {
  const std::string line = ProgressLine(Training(), kFacts) + "\n";
  EXPECT_EQ(Print(ProgressMode::kPlain), "hello\n" + line + "news\n");
}

TEST_F(PrinterTest, NonePrintsOnlyWhatIsSaid) {
  EXPECT_EQ(Print(ProgressMode::kNone), "hello\nnews\n");
}

TEST_F(PrinterTest, ABarIsErasedBeforeWhatIsSaid) {
  const std::string text = Print(ProgressMode::kBar);
  EXPECT_THAT(text, HasSubstr("\x1b[4F\x1b[Jnews\n"));
}

}  // namespace
}  // namespace flotilla
