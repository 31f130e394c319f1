#include "services/base/jsonl_sink.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/python.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

TEST(JsonlSinkTest, WritesOneObjectALine) {
  TempDir dir;
  auto sink = JsonlSink::Open(dir / "metrics.jsonl");
  ASSERT_TRUE(sink.ok()) << sink.status();
  (*sink)->Write(512, 1, 0.25, std::vector<Metric>{{"charts/SPS", 2048}});
  (*sink)->Write(1024, 2, 0.5,
                 std::vector<Metric>{{"losses/policy_loss", -0.1},
                                     {"losses/value_loss", 1e-30}});
  // Read while the sink is open: every line is flushed.
  EXPECT_EQ(ReadFile(dir / "metrics.jsonl"),
            "{\"global_step\":512,\"update\":1,\"wall_seconds\":0.25,"
            "\"charts/SPS\":2048.0}\n"
            "{\"global_step\":1024,\"update\":2,\"wall_seconds\":0.5,"
            "\"losses/policy_loss\":-0.1,\"losses/value_loss\":1e-30}\n");
}

TEST(JsonlSinkTest, WritesNullForWhatIsNotFinite) {
  TempDir dir;
  auto sink = JsonlSink::Open(dir / "metrics.jsonl");
  ASSERT_TRUE(sink.ok()) << sink.status();
  (*sink)->Write(
      0, 0, 0,
      std::vector<Metric>{{"a", std::nan("")},
                          {"b", std::numeric_limits<double>::infinity()}});
  EXPECT_EQ(ReadFile(dir / "metrics.jsonl"),
            "{\"global_step\":0,\"update\":0,\"wall_seconds\":0.0,\"a\":null,"
            "\"b\":null}\n");
}

TEST(JsonlSinkTest, EscapesNames) {
  TempDir dir;
  auto sink = JsonlSink::Open(dir / "metrics.jsonl");
  ASSERT_TRUE(sink.ok()) << sink.status();
  (*sink)->Write(0, 0, 0, std::vector<Metric>{{"a\"b\\c\n", 1}});
  EXPECT_NE(ReadFile(dir / "metrics.jsonl").find("\"a\\\"b\\\\c\\n\":1.0"),
            std::string::npos);
}

TEST(JsonlSinkTest, PythonReadsTheSameDoubles) {
  if (TestPython().empty()) GTEST_SKIP() << "no .deps/testvenv";
  TempDir dir;
  auto sink = JsonlSink::Open(dir / "metrics.jsonl");
  ASSERT_TRUE(sink.ok()) << sink.status();
  (*sink)->Write(3, 1, 1.0 / 3, std::vector<Metric>{{"x", 0.1 + 0.2}});
  const PythonResult result = RunPython(
      "import json, sys\n"
      "line = json.loads(open(sys.argv[1]).readline())\n"
      "assert line == {'global_step': 3, 'update': 1, 'wall_seconds': 1 / 3,\n"
      "                'x': 0.1 + 0.2}, line\n",
      dir / "metrics.jsonl");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(JsonlSinkTest, AppendsToWhatIsThere) {
  TempDir dir;
  for (int update = 1; update <= 2; ++update) {
    auto sink = JsonlSink::Open(dir / "metrics.jsonl");
    ASSERT_TRUE(sink.ok()) << sink.status();
    (*sink)->Write(0, update, 0, {});
  }
  EXPECT_EQ(ReadFile(dir / "metrics.jsonl"),
            "{\"global_step\":0,\"update\":1,\"wall_seconds\":0.0}\n"
            "{\"global_step\":0,\"update\":2,\"wall_seconds\":0.0}\n");
}

TEST(JsonlSinkTest, LinesOfManyThreadsStayWhole) {
  TempDir dir;
  auto sink = JsonlSink::Open(dir / "metrics.jsonl");
  ASSERT_TRUE(sink.ok()) << sink.status();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        (*sink)->Write(0, 7, 0, std::vector<Metric>{{"name", 1}});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string expected;
  for (int i = 0; i < 400; ++i) {
    expected +=
        "{\"global_step\":0,\"update\":7,\"wall_seconds\":0.0,\"name\":1.0}\n";
  }
  EXPECT_EQ(ReadFile(dir / "metrics.jsonl"), expected);
}

TEST(JsonlSinkTest, NamesThePathItCannotOpen) {
  const auto sink = JsonlSink::Open("/nonexistent/metrics.jsonl");
  ASSERT_FALSE(sink.ok());
  EXPECT_NE(sink.status().ToString().find("/nonexistent/metrics.jsonl"),
            std::string::npos);
}

TEST(JsonlSinkTest, BeginsALineOfItsOwnAfterOneThatWasCutOff) {
  TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  WriteFile(path, "{\"update\":1}\n{\"update\":2,\"charts/SP");
  for (int update = 3; update <= 4; ++update) {
    auto sink = JsonlSink::Open(path);
    ASSERT_TRUE(sink.ok()) << sink.status();
    (*sink)->Write(10 * update, update, 0, {});
  }
  EXPECT_EQ(ReadFile(path),
            "{\"update\":1}\n{\"update\":2,\"charts/SP\n"
            "{\"global_step\":30,\"update\":3,\"wall_seconds\":0.0}\n"
            "{\"global_step\":40,\"update\":4,\"wall_seconds\":0.0}\n");
}

TEST(JsonlSinkTest, AFullDiskStopsNothing) {
  auto sink = JsonlSink::Open("/dev/full");
  ASSERT_TRUE(sink.ok()) << sink.status();
  (*sink)->Write(0, 0, 0, {});
  (*sink)->Write(0, 1, 0, {});
}

TEST(SetAsideLinesAfterTest, MovesLaterLinesToAFileBesideIt) {
  TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  {
    auto sink = JsonlSink::Open(path);
    ASSERT_TRUE(sink.ok()) << sink.status();
    for (int update = 1; update <= 4; ++update) {
      (*sink)->Write(10 * update, update, 0, {});
    }
  }
  const auto moved = SetAsideLinesAfter(path, 2);
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ(moved->lines, 2);
  EXPECT_EQ(moved->last_update, 4);
  EXPECT_EQ(moved->path, path + ".after_update_2");
  EXPECT_EQ(ReadFile(path),
            "{\"global_step\":10,\"update\":1,\"wall_seconds\":0.0}\n"
            "{\"global_step\":20,\"update\":2,\"wall_seconds\":0.0}\n");
  EXPECT_EQ(ReadFile(path + ".after_update_2"),
            "{\"global_step\":30,\"update\":3,\"wall_seconds\":0.0}\n"
            "{\"global_step\":40,\"update\":4,\"wall_seconds\":0.0}\n");
}

TEST(SetAsideLinesAfterTest, ASecondTimeKeepsTheFirstFile) {
  TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  for (int time = 0; time < 2; ++time) {
    WriteFile(path, "{\"update\":9}\n");
    ASSERT_TRUE(SetAsideLinesAfter(path, 2).ok());
  }
  EXPECT_EQ(ReadFile(path + ".after_update_2"), "{\"update\":9}\n");
  EXPECT_EQ(ReadFile(path + ".after_update_2.2"), "{\"update\":9}\n");
}

TEST(SetAsideLinesAfterTest, MovesALineThatACrashCutOff) {
  TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  WriteFile(path, "{\"update\":1}\n{\"update\":1,\"charts/SP");
  const auto moved = SetAsideLinesAfter(path, 5);
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ(moved->lines, 1);
  EXPECT_EQ(ReadFile(path), "{\"update\":1}\n");
}

TEST(SetAsideLinesAfterTest, LinesThatFollowThoseThatMoveStay) {
  TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  WriteFile(path,
            "{\"update\":1}\n{\"update\":3}\n{\"update\":2}\n{\"upda\n"
            "{\"update\":2,\"eval/mean_return\":1.0}\n{\"update\":4}\n");
  const auto moved = SetAsideLinesAfter(path, 2);
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ(moved->lines, 3);
  EXPECT_EQ(moved->last_update, 4);
  EXPECT_EQ(ReadFile(path),
            "{\"update\":1}\n{\"update\":2}\n"
            "{\"update\":2,\"eval/mean_return\":1.0}\n");
  EXPECT_EQ(ReadFile(moved->path), "{\"update\":3}\n{\"upda\n{\"update\":4}\n");
}

// Days of a fast run are gigabytes.
TEST(SetAsideLinesAfterTest, HoldsNoWholeFileInMemory) {
  constexpr int kUpdates = 48 << 10;
  TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  const std::string rest = ",\"x\":\"" + std::string(1000, 'x') + "\"}";
  {
    std::ofstream out(path);
    for (int update = 1; update <= kUpdates; ++update) {
      out << "{\"update\":" << update << rest << "\n";
    }
  }
  const auto whole = std::filesystem::file_size(path);
  rusage before = {}, after = {};
  ASSERT_EQ(getrusage(RUSAGE_SELF, &before), 0);
  const auto moved = SetAsideLinesAfter(path, kUpdates - 2);
  ASSERT_EQ(getrusage(RUSAGE_SELF, &after), 0);
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 16 << 10);  // KiB
  EXPECT_EQ(moved->lines, 2);
  EXPECT_EQ(moved->last_update, kUpdates);
  EXPECT_EQ(std::filesystem::file_size(path) +
                std::filesystem::file_size(moved->path),
            whole);
  std::ifstream in(path);
  int update = 0;
  for (std::string line; std::getline(in, line);) {
    ASSERT_EQ(line, "{\"update\":" + std::to_string(++update) + rest);
  }
  EXPECT_EQ(update, kUpdates - 2);
}

// Who follows it tells by the inode, however fast it grows again.
TEST(SetAsideLinesAfterTest, LeavesAnotherFileAndNothingBesideTheTwo) {
  TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  WriteFile(path, "{\"update\":1}\n{\"update\":2}\n");
  std::filesystem::create_hard_link(path, dir / "before");
  ASSERT_TRUE(SetAsideLinesAfter(path, 1).ok());
  EXPECT_FALSE(std::filesystem::equivalent(path, dir / "before"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()),
                          std::filesystem::directory_iterator()),
            3);
}

TEST(SetAsideLinesAfterTest, AFileThatCannotBeReplacedStaysAsItIs) {
  TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  const std::string lines = "{\"update\":1}\n{\"update\":2}\n";
  WriteFile(path, lines);
  // What it would be written to is taken.
  const std::string beside = absl::StrCat(path, ".", getpid(), ".tmp");
  std::filesystem::create_directory(beside);
  const auto moved = SetAsideLinesAfter(path, 1);
  ASSERT_FALSE(moved.ok());
  EXPECT_NE(moved.status().message().find("cannot write \"" + path + "\""),
            std::string::npos)
      << moved.status();
  EXPECT_EQ(ReadFile(path), lines);
  EXPECT_TRUE(std::filesystem::is_directory(beside));
}

TEST(SetAsideLinesAfterTest, LeavesAFileWithNothingToMoveAlone) {
  TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  EXPECT_EQ(SetAsideLinesAfter(path, 5)->lines, 0);
  WriteFile(path, "{\"update\":5}\n");
  EXPECT_EQ(SetAsideLinesAfter(path, 5)->lines, 0);
  EXPECT_EQ(ReadFile(path), "{\"update\":5}\n");
}

TEST(SetAsideLinesAfterTest, ARunThatStartsOverKeepsNone) {
  TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  const std::string lines = "{\"update\":0}\n{\"update\":428}\n";
  WriteFile(path, lines);
  const auto moved = SetAsideLinesAfter(path, -1);
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ(moved->lines, 2);
  EXPECT_EQ(moved->last_update, 428);
  EXPECT_EQ(moved->path, BeforeStartingOver(path));
  EXPECT_EQ(ReadFile(path), "");
  EXPECT_EQ(ReadFile(BeforeStartingOver(path)), lines);
}

}  // namespace
}  // namespace flotilla
