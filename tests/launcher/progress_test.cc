#include "launcher/progress.h"

#include <google/protobuf/text_format.h>

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

TEST(ProgressTest, ABlockHasALineForEachRank) {
  const std::vector<std::string> block = ProgressBlock(Training(), kFacts, 200);
  ASSERT_THAT(block, SizeIs(3));
  EXPECT_THAT(block[0], HasSubstr("run [############------------]  50%"));
  EXPECT_THAT(block[1], HasSubstr("rank 0"));
  EXPECT_THAT(block[1], HasSubstr("learning"));
  EXPECT_THAT(block[2], HasSubstr("suspect"));
  EXPECT_THAT(block[2], HasSubstr("waits for rank 0"));
}

TEST(ProgressTest, NoLineIsWiderThanTheTerminal) {
  EXPECT_THAT(ProgressBlock(Training(), kFacts, 30),
              Each(SizeIs(testing::Le(30))));
}

TEST(ProgressTest, ManyRanksAreCutShort) {
  v1::Status status;
  for (int i = 0; i < 100; ++i) status.add_learner()->set_rank(i);
  const std::vector<std::string> block = ProgressBlock(status, kFacts, 80);
  EXPECT_THAT(block, SizeIs(18));
  EXPECT_EQ(block.back(), "  and 84 more");
}

TEST(ProgressTest, StatusTextNamesLearnersWorkersAndEvaluation) {
  const std::string text = StatusText(Training());
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
  EXPECT_THAT(text, HasSubstr("\x1b[3F\x1b[Jnews\n"));
}

}  // namespace
}  // namespace flotilla
