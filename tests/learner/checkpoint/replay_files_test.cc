#include "learner/checkpoint/replay_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_format.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_disk.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

// The content follows from `step`, so that a mixture of two would show.
TensorMap Contents(int64_t step, int64_t size = 100) {
  return {{"reward", torch::full({size}, static_cast<double>(step))},
          {"end", torch::full({size}, 1, torch::kUInt8)}};
}

ReplayOrigin Origin(int64_t step) {
  return {.global_step = step, .weights_digest = 0xfedcba9876543210u + step};
}

class ReplayFilesTest : public testing::Test {
 protected:
  // A checkpoint, as far as replays are concerned.
  std::string Checkpoint(int64_t step) const {
    const std::string path =
        absl::StrFormat("%s/step_%012d", dir_.path(), step);
    fs::create_directories(path);
    return path;
  }
  void Save(int64_t step, int rank) const {
    const absl::Status saved =
        SaveReplay(dir_.path(), rank, Origin(step), Contents(step));
    ASSERT_TRUE(saved.ok()) << saved;
  }
  std::string File(int64_t step, int rank) const {
    return absl::StrFormat("%s/replay_%012d/rank_%d/replay.safetensors",
                           dir_.path(), step, rank);
  }
  void Damage(int64_t step, int rank) const {
    std::fstream file(File(step, rank));
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  void ExpectLoads(int64_t step, int rank, int64_t of_step,
                   const std::string& passed_over) const {
    const auto saved = LoadReplay(Checkpoint(step), rank, Origin(step));
    ASSERT_TRUE(saved.ok()) << saved.status();
    EXPECT_EQ(saved->global_step, of_step);
    EXPECT_EQ(saved->contents.size(), 2);
    EXPECT_EQ(saved->contents.at("reward").min().item<int64_t>(), of_step);
    EXPECT_NE(saved->passed_over.find(passed_over), std::string::npos)
        << saved->passed_over;
    EXPECT_EQ(saved->passed_over.empty(), passed_over.empty())
        << saved->passed_over;
  }

  const TempDir dir_;
};

TEST_F(ReplayFilesTest, EachRankReadsBackItsOwn) {
  Save(10, 0);
  Save(10, 1);
  Save(20, 0);
  ExpectLoads(10, 0, 10, "");
  ExpectLoads(10, 1, 10, "");
  ExpectLoads(20, 0, 20, "");
  fs::create_directory_symlink("step_000000000010", dir_ / "latest");
  const auto linked = LoadReplay(dir_ / "latest", 1, Origin(10));
  EXPECT_TRUE(linked.ok()) << linked.status();
}

TEST_F(ReplayFilesTest, TheSameStepAgainReplacesIt) {
  Save(10, 0);
  ReplayOrigin other = Origin(10);
  ++other.weights_digest;
  ASSERT_TRUE(SaveReplay(dir_.path(), 0, other, Contents(11)).ok());
  const auto saved = LoadReplay(Checkpoint(10), 0, other);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->contents.at("reward")[0].item<int64_t>(), 11);
  int entries = 0;
  for (const auto& entry :
       fs::directory_iterator(dir_ / "replay_000000000010")) {
    EXPECT_EQ(entry.path().filename(), "rank_0");
    ++entries;
  }
  EXPECT_EQ(entries, 1);
}

// What was seen stays true: an older one serves.
TEST_F(ReplayFilesTest, TheNewestBeforeServesWhereThereIsNone) {
  Save(10, 0);
  Save(20, 0);
  Save(40, 0);
  ExpectLoads(30, 0, 20, "step 30 has none");
  ExpectLoads(39, 0, 20, "step 39 has none");
  Save(20, 1);
  ExpectLoads(40, 1, 20, "step 40 has none of rank 1");
  Damage(20, 0);
  ExpectLoads(30, 0, 10, "is damaged: its SHA-256");
  ReplayOrigin other = Origin(40);
  other.weights_digest = 1;
  const auto saved = LoadReplay(Checkpoint(40), 0, other);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->global_step, 10);
  EXPECT_NE(saved->passed_over.find("of other weights"), std::string::npos);
}

TEST_F(ReplayFilesTest, WithoutAnyThatCanBeReadTheReasonIsALine) {
  const auto expect = [&](int rank, const std::string& words) {
    const auto saved = LoadReplay(Checkpoint(10), rank, Origin(10));
    ASSERT_FALSE(saved.ok());
    EXPECT_NE(saved.status().message().find(words), std::string::npos)
        << saved.status();
    EXPECT_EQ(saved.status().message().find('\n'), std::string::npos);
  };
  expect(0, "there is none of rank 0 in");
  Save(10, 0);
  expect(1, "step 10 has none of rank 1");
  Damage(10, 0);
  expect(0, "replay.safetensors is damaged: its SHA-256");
  fs::resize_file(File(10, 0), 5);
  expect(0, "is damaged");
  fs::remove(fs::path(File(10, 0)).parent_path() / "SHA256SUMS");
  expect(0, "SHA256SUMS is damaged");
  EXPECT_FALSE(LoadReplay(dir_ / "nothing", 0, Origin(10)).ok());
}

// As a kill in the middle leaves it.
TEST_F(ReplayFilesTest,
       WhatIsUnfinishedCountsForNothingAndGoesWithTheNextSave) {
  Save(10, 0);
  const fs::path half = dir_ / "replay_000000000010/.aside_rank_1.123";
  const fs::path other = dir_ / "replay_000000000010/.aside_rank_0.123";
  for (const fs::path& aside : {half, other}) {
    fs::create_directory(aside);
    std::ofstream(aside / "replay.safetensors") << "half";
  }
  EXPECT_FALSE(LoadReplay(Checkpoint(10), 1, Origin(10)).ok());
  Save(20, 1);
  EXPECT_FALSE(fs::exists(half));
  EXPECT_TRUE(fs::exists(other));  // of a learner that may be writing it
}

TEST_F(ReplayFilesTest, OldOnesGoWithTheirCheckpointsButForTheNewest) {
  for (const int64_t step : {10, 20, 30, 40, 50}) Save(step, 0);
  Checkpoint(20);
  RemoveOldReplays(dir_.path(), 40);
  for (const int64_t step : {20, 40, 50})
    EXPECT_TRUE(fs::exists(File(step, 0)));
  for (const int64_t step : {10, 30}) EXPECT_FALSE(fs::exists(File(step, 0)));
}

TEST_F(ReplayFilesTest, AFullDiskIsALineAndSparesTheOneBefore) {
  const TinyDisk disk(dir_.path());
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  Save(10, 0);
  const absl::Status full =
      SaveReplay(dir_.path(), 0, Origin(20), Contents(20, 1'000'000));
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_NE(full.message().find("No space left on device"), std::string::npos);
  EXPECT_EQ(full.message().find('\n'), std::string::npos);
  ExpectLoads(20, 0, 10, "step 20 has none");
  Save(30, 0);  // there is room again
}

}  // namespace
}  // namespace flotilla
