#include "learner/training/watchdog.h"

#include <future>
#include <string>

#include "gtest/gtest.h"

namespace flotilla {
namespace {

TEST(WatchdogTest, NamesTheStepThatDoesNotEnd) {
  std::promise<std::string> late;
  Watchdog watchdog(absl::Milliseconds(50), [&](const std::string& step) {
    late.set_value(step);  // would throw if it were called twice
  });
  watchdog.Begin("update 6");
  watchdog.Begin("update 7");
  EXPECT_EQ(late.get_future().get(), "update 7");
  watchdog.Begin("update 8");
}

// Steps that end or have an allowance, rests, and no limit: each outlasts, by
// many times, the limit of a watchdog that begins with it and is awaited.
TEST(WatchdogTest, IsQuietOtherwise) {
  const auto never = [](const std::string& step) { FAIL() << step; };
  Watchdog resting(absl::Milliseconds(20), never);
  Watchdog unlimited(absl::ZeroDuration(), never);
  Watchdog stepping(absl::Minutes(5), never);
  Watchdog allowed(absl::Milliseconds(20), never);
  allowed.Begin("update 1", absl::Minutes(5));
  resting.Begin("update 1");
  resting.Rest();
  unlimited.Begin("update 1");
  for (int i = 0; i < 10; ++i) {
    stepping.Begin("update");
    std::promise<void> late;
    Watchdog clock(absl::Milliseconds(40),
                   [&](const std::string&) { late.set_value(); });
    clock.Begin("time that passes");
    late.get_future().wait();
  }
}

}  // namespace
}  // namespace flotilla
