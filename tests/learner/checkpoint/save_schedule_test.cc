#include "learner/checkpoint/save_schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace flotilla {
namespace {

v1::CheckpointConfig Every(int64_t updates, double seconds) {
  v1::CheckpointConfig config;
  config.set_every_updates(updates);
  config.set_every_seconds(seconds);
  return config;
}

TEST(SaveScheduleTest, ByDefaultTheClockAsksOnceAMinute) {
  const v1::CheckpointConfig config;
  SaveClock clock(1000);
  EXPECT_FALSE(clock.Asks(config, 1059.9));
  EXPECT_TRUE(clock.Asks(config, 1060));
  clock.Began(1061, 0.5);
  EXPECT_FALSE(clock.Asks(config, 1120.9));
  EXPECT_TRUE(clock.Asks(config, 1121));
}

TEST(SaveScheduleTest, ACostlySaveIsMadeLessOften) {
  SaveClock clock(0);
  clock.Began(60, 10);
  EXPECT_FALSE(clock.Asks(Every(0, 60), 259.9));
  EXPECT_TRUE(clock.Asks(Every(0, 60), 260));  // 20 times 10 s
  clock.Began(260, 1);
  EXPECT_TRUE(clock.Asks(Every(0, 60), 320));
  // Changed in flight.
  EXPECT_FALSE(clock.Asks(Every(0, 600), 320));
}

TEST(SaveScheduleTest, ZeroSecondsIsNever) {
  EXPECT_FALSE(SaveClock(0).Asks(Every(10, 0), 1e9));
}

TEST(SaveScheduleTest, AVoteOrTheCadenceOfUpdatesMakesOneDue) {
  EXPECT_TRUE(IsSaveDue(Every(10, 60), 10, 0, 0, false));
  EXPECT_FALSE(IsSaveDue(Every(10, 60), 11, 0, 0, false));
  EXPECT_TRUE(IsSaveDue(Every(10, 60), 11, 0, 0, true));
  EXPECT_FALSE(IsSaveDue(Every(0, 60), 10, 0, 0, false));
}

// The updates after which one of `count` is due in a run of `updates`.
std::vector<int64_t> Due(int64_t count, int64_t updates) {
  v1::CheckpointConfig config;
  config.set_count(count);
  EXPECT_FALSE(SaveClock(0).Asks(config, 1e9));
  std::vector<int64_t> due;
  for (int64_t update = 1; update <= updates; ++update) {
    const double total = static_cast<double>(updates);
    if (IsSaveDue(config, update, (update - 1) / total, update / total,
                  false)) {
      due.push_back(update);
    }
  }
  return due;
}

TEST(SaveScheduleTest, ACountIsSpreadEvenlyAndTheLastIsTheEnd) {
  EXPECT_EQ(Due(1, 100), (std::vector<int64_t>{}));
  EXPECT_EQ(Due(4, 100), (std::vector<int64_t>{25, 50, 75}));
  EXPECT_EQ(Due(3, 10), (std::vector<int64_t>{4, 7}));
  EXPECT_EQ(Due(5, 3), (std::vector<int64_t>{1, 2}));  // no more than updates
  for (const int64_t updates : {49, 97, 1000}) {
    EXPECT_EQ(Due(7, updates).size(), 6) << updates;
    EXPECT_EQ(Due(updates, updates).size(), updates - 1) << updates;
  }
}

TEST(SaveScheduleTest, ACountStaysWholeWhateverKeepIs) {
  v1::CheckpointConfig config;
  EXPECT_EQ(NumKept(config), 3);
  config.set_count(8);
  EXPECT_EQ(NumKept(config), 8);
  config.set_count(2);
  EXPECT_EQ(NumKept(config), 3);
}

}  // namespace
}  // namespace flotilla
