#include "launcher/follow.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/config.h"
#include "services/base/run_summary.h"
#include "services/base/sha256.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_disk.h"

namespace flotilla {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

class FollowTest : public testing::Test {
 protected:
  FollowTest() : run_(folder_ / "run") {
    MakeRun();
    options_.on_skipped = [this](const std::string& text) {
      skipped_.push_back(text);
    };
  }

  void MakeRun() {
    fs::create_directories(run_.checkpoints());
    v1::RunConfig config;
    config.mutable_ppo();
    WriteFile(run_.config(), FormatResolved(config));
  }

  static std::string Name(int step) {
    return absl::StrFormat("step_%012d", step);
  }

  // As CheckpointStore leaves it.
  std::string Save(int step, const std::string& weights) {
    const std::string path = run_.checkpoints() + "/" + Name(step);
    fs::create_directories(path);
    WriteFile(path + "/weights.safetensors", weights);
    WriteFile(path + "/progress.json",
              absl::StrCat("{\"global_step\": ", step, ", \"update\": ",
                           step / 10, ", \"wall_seconds\": 0.5}"));
    WriteFile(path + "/SHA256SUMS",
              absl::StrCat(Sha256Hex(weights), "  weights.safetensors\n",
                           Sha256Hex("?"), "  progress.json\n"));
    return path;
  }

  void End(v1::RunSummary::Status status) {
    v1::RunSummary summary;
    summary.set_status(status);
    ASSERT_TRUE(WriteRunSummary(run_.summary(), summary).ok());
  }

  // The weights that it was given say what it returns.
  absl::StatusOr<Json> Play(const std::string& checkpoint) {
    played_.push_back(fs::path(checkpoint).filename());
    const double value =
        std::stod(ReadFile(checkpoint + "/weights.safetensors"));
    return Json{{"mean_return", value},
                {"min_return", value - 1},
                {"max_return", value + 1},
                {"episodes",
                 {{{"return", value - 1}, {"length", 4}, {"won", 1}},
                  {{"return", value + 1}, {"length", 8}}}}};
  }

  absl::StatusOr<int> Follow(const PlayCheckpoint& play,
                             std::stop_token stop = {}) {
    const auto log = FollowLog::Open(run_);
    if (!log.ok()) return log.status();
    return FollowRun(run_, play, options_, log->get(), stop);
  }
  absl::StatusOr<int> Follow() {
    return Follow([this](const std::string& path) { return Play(path); });
  }

  TempDir folder_;
  const RunFolder run_;
  FollowOptions options_;
  std::vector<std::string> played_, skipped_;
};

TEST_F(FollowTest, EvaluatesInTheOrderOfStepsAndOnce) {
  Save(200, "2");
  Save(30, "3");
  fs::create_directories(run_.checkpoints() + "/.aside_step_000000000007.1");
  fs::create_directory_symlink(Name(200), run_.latest_checkpoint());
  End(v1::RunSummary::COMPLETED);
  EXPECT_EQ(*Follow(), 0);
  EXPECT_THAT(played_, ElementsAre(Name(30), Name(200)));
  EXPECT_EQ(*Follow(), 0);
  EXPECT_EQ(played_.size(), 2u);
  EXPECT_FALSE(fs::exists(run_.path() + "/.following"));
}

TEST_F(FollowTest, ALineTellsOfTheCheckpointAndItsEpisodes) {
  Save(30, "3");
  End(v1::RunSummary::SOLVED);
  ASSERT_EQ(*Follow(), 0);
  Json line = *ParseJson(ReadFile(run_.evaluations()));
  EXPECT_GE(line.at("seconds"), 0);
  line.erase("seconds");
  EXPECT_EQ(line, (Json{{"checkpoint", Name(30)},
                        {"global_step", 30},
                        {"update", 3},
                        {"wall_seconds", 0.5},
                        {"episodes", 2},
                        {"eval/mean_return", 3.0},
                        {"eval/min_return", 2.0},
                        {"eval/max_return", 4.0},
                        {"eval/mean_length", 6.0},
                        {"eval/won", 1.0},
                        {"eval/update", 3},
                        {"weights_sha256", Sha256Hex("3")}}));
}

TEST_F(FollowTest, WaitsForMoreUntilTheRunIsOver) {
  Save(10, "1");
  const auto play = [this](const std::string& path) {
    // Saved, and ended, while it is busy.
    if (played_.empty()) {
      Save(20, "2");
    } else {
      End(v1::RunSummary::STOPPED);
    }
    return Play(path);
  };
  EXPECT_EQ(*Follow(play), 0);
  EXPECT_THAT(played_, ElementsAre(Name(10), Name(20)));
}

TEST_F(FollowTest, APreemptedRunIsNotOver) {
  Save(10, "1");
  End(v1::RunSummary::PREEMPTED);
  std::stop_source stop;
  options_.poll = absl::Milliseconds(1);
  int waits = 0;
  options_.on_waiting = [&] {
    ++waits;
    Save(20, "2");
  };
  options_.on_evaluated = [&](const Json&) {
    if (played_.size() == 2) stop.request_stop();
  };
  const auto play = [this](const std::string& path) { return Play(path); };
  EXPECT_TRUE(absl::IsCancelled(Follow(play, stop.get_token()).status()));
  EXPECT_EQ(played_.size(), 2u);
  EXPECT_EQ(waits, 1);
}

TEST_F(FollowTest, RemovingItWhileItIsPlayedDoesNoHarm) {
  const std::string saved = Save(10, "1");
  End(v1::RunSummary::COMPLETED);
  const auto play = [&](const std::string& path) {
    fs::remove_all(saved);
    return Play(path);
  };
  EXPECT_EQ(*Follow(play), 0);
  EXPECT_EQ(ParseJson(ReadFile(run_.evaluations()))->at("eval/mean_return"), 1);
}

TEST_F(FollowTest, OtherWeightsOfTheSameStepAreEvaluatedToo) {
  Save(10, "1");
  End(v1::RunSummary::COMPLETED);
  EXPECT_EQ(*Follow(), 0);
  fs::remove_all(run_.checkpoints() + "/" + Name(10));
  Save(10, "5");  // by a run that went back
  EXPECT_EQ(*Follow(), 0);
  EXPECT_THAT(played_, ElementsAre(Name(10), Name(10)));
}

TEST_F(FollowTest, WhatCannotBePlayedIsLeftOutAndCounted) {
  fs::remove(Save(10, "1") + "/progress.json");
  Save(20, "2");
  End(v1::RunSummary::COMPLETED);
  EXPECT_EQ(*Follow(), 1);
  EXPECT_THAT(played_, ElementsAre(Name(20)));
  EXPECT_THAT(skipped_, ElementsAre(HasSubstr("progress.json is missing")));
}

// Two checkpoints, and a player that fails at first.
class FailingPlayTest : public FollowTest {
 protected:
  absl::StatusOr<int> FollowWith(std::vector<absl::Status> failures) {
    Save(10, "1");
    Save(20, "2");
    End(v1::RunSummary::COMPLETED);
    options_.poll = absl::Milliseconds(1);
    return Follow([&](const std::string& path) -> absl::StatusOr<Json> {
      if (plays_++ < failures.size()) return failures[plays_ - 1];
      return Play(path);
    });
  }

  size_t plays_ = 0;
};

TEST_F(FailingPlayTest, WhatFailsInPassingIsPlayedAgain) {
  EXPECT_EQ(*FollowWith({absl::InternalError("CUDA out of memory"),
                         absl::UnavailableError("connection refused")}),
            0);
  EXPECT_EQ(plays_, 4u);
  EXPECT_THAT(played_, ElementsAre(Name(10), Name(20)));
  EXPECT_THAT(skipped_, IsEmpty());
}

TEST_F(FailingPlayTest, WhatFailsThreeTimesIsLeftOutAndCounted) {
  EXPECT_EQ(*FollowWith({3, absl::InternalError("CUDA out of memory")}), 1);
  EXPECT_THAT(played_, ElementsAre(Name(20)));
  EXPECT_THAT(skipped_, ElementsAre(HasSubstr("CUDA out of memory")));
}

TEST_F(FailingPlayTest, WhatFindsNoRoomWaitsForItAndIsToldOfOnce) {
  EXPECT_EQ(*FollowWith({5, absl::ResourceExhaustedError("the disk is full")}),
            0);
  EXPECT_THAT(played_, ElementsAre(Name(10), Name(20)));
  EXPECT_THAT(skipped_,
              ElementsAre(AllOf(HasSubstr("waits for room: the disk is full"),
                                HasSubstr(Name(10)))));
}

TEST_F(FollowTest, ALineWaitsForRoomOnAFullDisk) {
  TinyDisk disk(folder_.path());
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  MakeRun();
  Save(10, "1");
  Save(20, "2");
  End(v1::RunSummary::COMPLETED);
  options_.poll = absl::Milliseconds(1);
  options_.on_skipped = [&](const std::string& text) {
    skipped_.push_back(text);
    EXPECT_EQ(ReadFile(run_.evaluations()), "");
    disk.Free();
  };
  const auto play = [&](const std::string& path) {
    if (played_.empty()) disk.Fill();
    return Play(path);
  };
  EXPECT_EQ(*Follow(play), 0);
  EXPECT_THAT(skipped_, ElementsAre(HasSubstr("No space left on device")));
  // Nothing is evaluated again, and every line is one.
  played_.clear();
  EXPECT_EQ(*Follow(), 0);
  EXPECT_THAT(played_, IsEmpty());
}

TEST_F(FollowTest, AStopEndsTheWaitForRoom) {
  TinyDisk disk(folder_.path());
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  MakeRun();
  Save(10, "1");
  options_.poll = absl::Hours(1);
  std::stop_source stop;
  options_.on_skipped = [&](const std::string&) { stop.request_stop(); };
  const auto play = [&](const std::string& path) {
    disk.Fill();
    return Play(path);
  };
  const absl::Status status = Follow(play, stop.get_token()).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

TEST_F(FollowTest, AFolderThatIsGoneIsNotHeld) {
  const absl::Status status = HoldCheckpoint(run_.checkpoints() + "/" + Name(1),
                                             run_.path() + "/.following/x");
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
}

TEST_F(FollowTest, OneAtATimeHasTheFile) {
  const auto first = FollowLog::Open(run_);
  ASSERT_TRUE(first.ok());
  const absl::Status second = FollowLog::Open(run_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(second));
  EXPECT_THAT(std::string(second.message()), HasSubstr("followed already"));
}

TEST_F(FollowTest, ALastLineThatIsCutOffIsRemoved) {
  Save(10, "1");
  Save(20, "2");
  End(v1::RunSummary::COMPLETED);
  ASSERT_EQ(*Follow(), 0);
  const std::string whole = ReadFile(run_.evaluations());
  WriteFile(run_.evaluations(), whole.substr(0, whole.size() - 1));
  played_.clear();
  EXPECT_EQ(*Follow(), 0);
  EXPECT_THAT(played_, ElementsAre(Name(20)));
  EXPECT_THAT(skipped_, IsEmpty());
}

TEST_F(FollowTest, ALineOfSomethingElseIsRefusedByNumber) {
  WriteFile(run_.evaluations(), "\n[1]\n");
  const absl::Status status = FollowLog::Open(run_).status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("evaluations.jsonl line 2 does not tell"));
  EXPECT_EQ(ReadFile(run_.evaluations()), "\n[1]\n");
}

TEST_F(FollowTest, AFileThatIsRemovedMeanwhileIsAnError) {
  const auto log = FollowLog::Open(run_);
  fs::remove(run_.evaluations());
  EXPECT_TRUE(absl::IsFailedPrecondition(
      (*log)->Append({{"checkpoint", "a"}, {"weights_sha256", "b"}})));
}

}  // namespace
}  // namespace flotilla
