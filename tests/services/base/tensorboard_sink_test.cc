#include "services/base/tensorboard_sink.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/testing/python.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

// CRC-32C bit by bit, then TFRecord's mask.
uint32_t MaskedCrc(const std::string& bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (0x82f63b78u & -(crc & 1));
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

std::string OnlyFile(const std::string& dir) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    files.push_back(entry.path().string());
  }
  EXPECT_EQ(files.size(), 1u);
  return files.at(0);
}

TEST(TensorboardSinkTest, FramesRecordsAsTfrecord) {
  // The check value of CRC-32C, so that the oracle itself is checked.
  ASSERT_EQ(MaskedCrc("123456789"),
            ((0xe3069283u >> 15) | (0xe3069283u << 17)) + 0xa282ead8u);
  TempDir dir;
  {
    auto sink = TensorboardSink::Open(dir / "tb");
    ASSERT_TRUE(sink.ok()) << sink.status();
    (*sink)->Write(512, 1, 0.5, std::vector<Metric>{{"charts/SPS", 1.5}});
  }
  const std::string bytes = ReadFile(OnlyFile(dir / "tb"));
  std::vector<std::string> records;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t size = 0;
    uint32_t crc = 0;
    std::memcpy(&size, bytes.data() + at, 8);
    std::memcpy(&crc, bytes.data() + at + 8, 4);
    ASSERT_EQ(crc, MaskedCrc(bytes.substr(at, 8)));
    records.push_back(bytes.substr(at + 12, size));
    std::memcpy(&crc, bytes.data() + at + 12 + size, 4);
    ASSERT_EQ(crc, MaskedCrc(records.back()));
    at += 16 + size;
  }
  ASSERT_EQ(records.size(), 2u);
  EXPECT_NE(records[0].find("brain.Event:2"), std::string::npos);
  EXPECT_NE(records[1].find("charts/SPS"), std::string::npos);
}

// Reads scalars with TensorBoard's own accumulator.
constexpr char kReader[] = R"(
import math, sys
from tensorboard.backend.event_processing import event_accumulator
events = event_accumulator.EventAccumulator(sys.argv[1])
events.Reload()
def scalars(tag):
    return [(e.step, e.value) for e in events.Scalars(tag)]
)";

TEST(TensorboardSinkTest, TensorBoardReadsTheScalars) {
  if (!TestPythonHas("tensorboard"))
    GTEST_SKIP() << "no tensorboard in .deps/testvenv";
  TempDir dir;
  {
    auto sink = TensorboardSink::Open(dir / "tb");
    ASSERT_TRUE(sink.ok()) << sink.status();
    (*sink)->Write(
        512, 1, 0.5,
        std::vector<Metric>{{"charts/SPS", 1.5}, {"losses/td_loss", -2}});
    (*sink)->Write(5'000'000'000, 2, 0.5,
                   std::vector<Metric>{{"charts/SPS", std::nan("")}});
  }
  const PythonResult result = RunPython(
      std::string(kReader) +
          "assert sorted(events.Tags()['scalars']) == "
          "['charts/SPS', 'losses/td_loss'], events.Tags()\n"
          "sps = scalars('charts/SPS')\n"
          "assert sps[0] == (512, 1.5), sps\n"
          "assert sps[1][0] == 5_000_000_000 and math.isnan(sps[1][1]), sps\n"
          "assert scalars('losses/td_loss') == [(512, -2)]\n",
      dir / "tb");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(TensorboardSinkTest, TensorBoardForgetsWhatAResumedRunTookBack) {
  if (!TestPythonHas("tensorboard"))
    GTEST_SKIP() << "no tensorboard in .deps/testvenv";
  TempDir dir;
  {
    auto sink = TensorboardSink::Open(dir / "tb");
    ASSERT_TRUE(sink.ok()) << sink.status();
    for (int step : {10, 20, 30}) {
      (*sink)->Write(step, 0, 0, std::vector<Metric>{{"x", 1}});
    }
  }
  {
    auto sink = TensorboardSink::Open(dir / "tb", 20);
    ASSERT_TRUE(sink.ok()) << sink.status();
    (*sink)->Write(25, 0, 0, std::vector<Metric>{{"x", 2}});
  }
  const PythonResult result = RunPython(
      std::string(kReader) +
          "assert scalars('x') == [(10, 1), (20, 1), (25, 2)], scalars('x')\n",
      dir / "tb");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(TensorboardSinkTest, NamesTheFolderItCannotMake) {
  const auto sink = TensorboardSink::Open("/dev/null/tb");
  ASSERT_FALSE(sink.ok());
  EXPECT_NE(sink.status().ToString().find("/dev/null/tb"), std::string::npos);
}

}  // namespace
}  // namespace flotilla
