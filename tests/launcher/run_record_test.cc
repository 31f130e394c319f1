#include "launcher/run_record.h"

#include <sys/stat.h>

#include <chrono>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/run_list.h"
#include "launcher/runs.h"
#include "services/base/config.h"
#include "services/base/jsonl_sink.h"
#include "services/base/run_summary.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class RunRecordTest : public testing::Test {
 protected:
  // A run as a launcher and rank 0 leave it.
  RunFolder Make(
      const std::string& name, const std::vector<std::string>& overrides = {},
      std::optional<v1::RunSummary::Status> status = v1::RunSummary::COMPLETED,
      double mean_return = 100) {
    const RunFolder folder(folder_ / name);
    EXPECT_TRUE(folder.Make().ok());
    v1::RunConfig config;
    config.mutable_ppo();
    for (const std::string& text : overrides) {
      EXPECT_TRUE(ApplyOverride(text, &config).ok()) << text;
    }
    WriteFile(folder.config(), FormatResolved(config));
    auto sink = *JsonlSink::Open(folder.metrics());
    const Metric metric = {"charts/episodic_return", mean_return};
    sink->Write(512, 1, 2.5, std::span(&metric, 1));
    if (status) {
      v1::RunSummary summary;
      summary.set_status(*status);
      summary.set_mean_return(mean_return);
      summary.set_global_steps(1024);
      summary.set_wall_seconds(5);
      summary.set_world_size(2);
      EXPECT_TRUE(WriteRunSummary(folder.summary(), summary).ok());
    }
    return folder;
  }

  RunRecord Read(const RunFolder& folder,
                 absl::Duration later = absl::ZeroDuration()) {
    return ReadRunRecord(folder.path(), absl::Now() + later);
  }

  TempDir folder_;
};

TEST_F(RunRecordTest, AResultIsTheSummarys) {
  const RunRecord run = Read(Make("a", {}, v1::RunSummary::SOLVED, 321));
  EXPECT_EQ(run.status, "solved");
  EXPECT_EQ(run.status_from, "summary.json");
  EXPECT_EQ(run.score(), 321);
  EXPECT_EQ(run.steps, 1024);
  EXPECT_EQ(run.wall_seconds, 5);
  EXPECT_EQ(run.learners, 2);
  EXPECT_THAT(run.notes, IsEmpty());
}

TEST_F(RunRecordTest, WhoeverHoldsTheLockIsRunningIt) {
  // A run that is resumed has a summary of before.
  const RunFolder folder = Make("a");
  {
    const auto lock = RunLock::Take(folder);
    ASSERT_TRUE(lock.ok()) << lock.status();
    const RunRecord run = Read(folder);
    EXPECT_EQ(run.status, "running");
    EXPECT_THAT(run.status_from,
                AllOf(HasSubstr(absl::StrCat("pid ", getpid(), " on ")),
                      EndsWith("holds .lock")));
    EXPECT_EQ(run.steps, 512);  // what the metrics say
    EXPECT_EQ(run.score(), 100);
    // Looking kept nobody out.
    EXPECT_TRUE(RunLock(RunLock::Take(Make("b")).value()).Keep().ok());
  }
  EXPECT_EQ(Read(folder).status, "completed");
}

TEST_F(RunRecordTest, AKilledRunIsUnfinished) {
  const RunFolder killed = Make("a", {}, std::nullopt);
  RunLock::Take(killed).IgnoreError();  // and let go
  EXPECT_EQ(Read(killed).status, "unfinished");
  EXPECT_THAT(Read(killed).status_from, HasSubstr("no summary.json"));
  EXPECT_EQ(Read(killed).steps, 512);

  // Killed after it went on: the summary is older than the metrics.
  const RunFolder resumed = Make("b");
  const auto now = std::filesystem::last_write_time(resumed.metrics());
  std::filesystem::last_write_time(resumed.summary(),
                                   now - std::chrono::seconds(9));
  EXPECT_EQ(Read(resumed).status, "unfinished");
  EXPECT_EQ(Read(resumed).steps, 512);
}

TEST_F(RunRecordTest, AnEvaluationCountsHoweverManyUpdatesAgo) {
  const RunFolder folder =
      Make("a", {"evaluation.every_updates=1"}, std::nullopt);
  const std::string line = ReadFile(folder.metrics());
  std::string lines = line + "{\"update\":1,\"eval/mean_return\":250.0}\n";
  while (lines.size() < (2 << 20)) lines += line;
  WriteFile(folder.metrics(), lines);
  EXPECT_EQ(Read(folder).eval_return, 250);
  EXPECT_EQ(Read(folder).mean_return, 100);
  EXPECT_EQ(Read(folder).score(), 250);

  // Of a run that does not evaluate, the end is read alone, unless it may have been
  // told to in flight.
  const RunFolder other = Make("b", {}, std::nullopt);
  WriteFile(other.metrics(), lines);
  EXPECT_EQ(Read(other).eval_return, std::nullopt);
  WriteFile(other.changes(), "");
  EXPECT_EQ(Read(other).eval_return, 250);
}

TEST_F(RunRecordTest, OfAnotherHostTheMetricsTell) {
  const RunFolder folder = Make("a", {}, std::nullopt);
  WriteFile(folder.lock(), "pid 17 on a-host-far-away\n");
  EXPECT_EQ(Read(folder).status, "running");
  EXPECT_THAT(Read(folder).status_from,
              HasSubstr("pid 17 on a-host-far-away wrote metrics.jsonl"));
  EXPECT_EQ(Read(folder, absl::Hours(1)).status, "unknown");
}

TEST_F(RunRecordTest, AResultCountsUntilSomebodyGoesOnWithTheRun) {
  const auto was_written = [](const std::string& path, int seconds_ago) {
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type::clock::now() -
                  std::chrono::seconds(seconds_ago));
  };
  EXPECT_FALSE(HasResult(Make("none", {}, std::nullopt)));
  const RunFolder folder = Make("a");
  EXPECT_TRUE(HasResult(folder));
  was_written(folder.metrics(), 60);
  was_written(folder.summary(), 50);
  {
    const auto lock = RunLock::Take(folder);
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_FALSE(HasResult(folder));  // it has written nothing yet
    was_written(folder.lock(), 70);
    EXPECT_TRUE(HasResult(folder));  // it is about to leave
    const RunFolder failed = Make("failed", {}, v1::RunSummary::FAILED);
    const auto holder = RunLock::Take(failed);
    ASSERT_TRUE(holder.ok()) << holder.status();
    was_written(failed.lock(), 70);
    EXPECT_FALSE(HasResult(failed));  // or starts a learner again
  }
  // On a host whose locks are not seen.
  WriteFile(folder.lock(), "pid 17 on a-host-far-away\n");
  EXPECT_FALSE(HasResult(folder));
  was_written(folder.lock(), 70);
  EXPECT_TRUE(HasResult(folder));
  was_written(folder.metrics(), 10);
  EXPECT_FALSE(HasResult(folder));
}

TEST_F(RunRecordTest, WhatIsBrokenIsNotedInALine) {
  const RunFolder folder = Make("a", {}, std::nullopt);
  const std::string whole = ReadFile(folder.metrics());
  WriteFile(folder.metrics(), whole + whole.substr(0, 20));
  WriteFile(folder.summary(), "{\"status\": ");
  RunRecord run = Read(folder);
  EXPECT_EQ(run.status, "unfinished");
  EXPECT_EQ(run.steps, 512);
  EXPECT_THAT(run.notes,
              ElementsAre(HasSubstr("summary.json is not a run's summary"),
                          HasSubstr("ends in the middle of a line")));
  WriteFile(folder.config(), "pp {}");
  run = Read(folder);
  EXPECT_EQ(run.status, "unreadable");
  EXPECT_THAT(run.notes[0], HasSubstr("there is no field \"pp\""));
  EXPECT_THAT(RunTable({run}, 0), HasSubstr("unreadable"));
  EXPECT_THAT(RunsAsJson({run}), HasSubstr("\"eval_mean_return\": null"));
}

TEST_F(RunRecordTest, RunsAreFoundInFoldersOfFolders) {
  Make("sweep/b");
  Make("sweep/a");
  Make("c");
  std::filesystem::create_directory(folder_ / "empty");
  EXPECT_THAT(
      *FindRunFolders(folder_.path()),
      ElementsAre(folder_ / "c", folder_ / "sweep/a", folder_ / "sweep/b"));
  EXPECT_THAT(*FindRunFolders(folder_ / "c"), ElementsAre(folder_ / "c"));
  EXPECT_THAT(*FindRunFolders(folder_ / "empty"), IsEmpty());
  // A checkpoint's folder has a configuration, and is no run.
  const std::string saved = folder_ / "c/checkpoints/step_000000001024";
  std::filesystem::create_directories(saved);
  WriteFile(saved + "/config.textproto", "ppo {}");
  WriteFile(saved + "/weights.safetensors", "");
  EXPECT_THAT(*FindRunFolders(folder_ / "c/checkpoints"), IsEmpty());
  EXPECT_TRUE(absl::IsNotFound(FindRunFolders(folder_ / "none").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      FindRunFolders(RunFolder(folder_ / "c").config()).status()));
}

TEST_F(RunRecordTest, ARunCountsOnceWhateverLeadsToIt) {
  Make("runs/b");
  Make("runs/c");
  std::filesystem::create_directory_symlink("b", folder_ / "runs/a_link");
  std::filesystem::create_directory_symlink("c", folder_ / "runs/latest");
  std::filesystem::create_directory_symlink(".", folder_ / "runs/circle");
  const std::string b = folder_ / "runs/b", c = folder_ / "runs/c";
  EXPECT_THAT(*FindRunFolders(folder_ / "runs"), ElementsAre(b, c));
  const auto paths = [&](const std::vector<std::string>& folders) {
    std::vector<std::string> read;
    const auto runs = ReadRunRecords(folders, absl::Now());
    EXPECT_TRUE(runs.ok()) << runs.status();
    for (const RunRecord& run : *runs) read.push_back(run.path);
    return read;
  };
  EXPECT_THAT(paths({folder_ / "runs", c}), ElementsAre(b, c));
  // By the name that was given first; a run that is elsewhere has no other.
  const std::string latest = folder_ / "runs/latest";
  EXPECT_THAT(paths({latest, folder_ / "runs"}), ElementsAre(latest, b));
  std::filesystem::create_directory(folder_ / "links");
  std::filesystem::create_directory_symlink(c, folder_ / "links/x");
  EXPECT_THAT(paths({folder_ / "links"}), ElementsAre(folder_ / "links/x"));
}

TEST_F(RunRecordTest, RunsDifferInWhatNotAllOfThemShare) {
  const std::vector<RunRecord> runs = {
      Read(Make("a")), Read(Make("b", {"seed=2", "ppo.epochs=8"})),
      Read(Make("c", {"seed=3"})),
      Read(Make("d", {"env.id=Pendulum-v1", "ppo.epochs=9"}))};
  const auto differences = FindDifferences(runs);
  EXPECT_THAT(differences[0], ElementsAre(Pair("ppo.epochs", "4")));
  EXPECT_THAT(differences[1], ElementsAre(Pair("ppo.epochs", "8")));
  EXPECT_THAT(differences[2], ElementsAre(Pair("ppo.epochs", "4")));
  EXPECT_THAT(differences[3], IsEmpty());  // of another environment
}

TEST_F(RunRecordTest, LearnersAndNetworksAreDifferencesToo) {
  const RunFolder a = Make("a", {"model.torchscript=a/network.pt"});
  const RunFolder b = Make("b", {"model.torchscript=b/network.pt"});
  WriteFile(a.path() + "/network.pt", "a network");
  WriteFile(b.path() + "/network.pt", "a network");
  EXPECT_THAT(FindDifferences({Read(a), Read(b)})[1], IsEmpty());
  WriteFile(b.path() + "/network.pt", "another");
  RunRecord other = Read(b);
  other.learners = 4;
  EXPECT_EQ(DescribeDifferences(FindDifferences({Read(a), other})[1]),
            DescribeDifferences(
                {{"learners", "4"},
                 {"model.torchscript",
                  "\"" + other.config.model().torchscript() + "\""}}));
}

TEST_F(RunRecordTest, RunsAreSorted) {
  std::vector<RunRecord> runs = {
      Read(Make("a", {}, v1::RunSummary::FAILED, 5)), Read(Make("b")),
      Read(Make("c", {}, v1::RunSummary::FAILED, -5))};
  runs[1].steps = std::nullopt;
  const auto names = [&](const std::string& order) {
    SortRuns(order, &runs);
    std::string text;
    for (const RunRecord& run : runs) text += run.path.back();
    return text;
  };
  EXPECT_EQ(names("score"), "bac");
  EXPECT_EQ(names("name"), "abc");
  EXPECT_EQ(names("steps"), "acb");  // without any: last
}

TEST_F(RunRecordTest, ATableFitsTheTerminal) {
  const std::vector<RunRecord> runs = {Read(Make("a")),
                                       Read(Make("b", {"ppo.epochs=8"}))};
  const std::string table = RunTable(runs, 0);
  EXPECT_THAT(table, AllOf(HasSubstr("differs by"), HasSubstr("ppo.epochs=8"),
                           HasSubstr("1,024")));
  EXPECT_THAT(RunTable(runs, 30), HasSubstr("...\n"));
  RunRecord named = runs[0];
  named.path = "ééééééééééééééé";
  EXPECT_THAT(RunTable({named}, 10), HasSubstr("\nééééééé...\n"));
}

}  // namespace
}  // namespace flotilla
