#include "envserver/envs/sleep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/envserver/environment_harness.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::Each;
using testing::HasSubstr;

EnvironmentHarness MakeHarness(const v1::SleepOptions& options,
                               uint64_t worker_id = 0) {
  auto env = Sleep::Make(options, worker_id);
  CHECK(env.ok()) << env.status();
  return EnvironmentHarness(*std::move(env));
}

TEST(SleepTest, StepSaysHowLongItTakesAndReturnsAtOnce) {
  v1::SleepOptions options;
  options.set_step_ms(50);
  EnvironmentHarness env = MakeHarness(options);
  env.Reset(1);
  EXPECT_EQ(env.Step<int64_t>(0).delay, absl::Milliseconds(50));
}

TEST(SleepTest, JitterIsAddedAndFollowsTheSeed) {
  v1::SleepOptions options;
  options.set_step_ms(1);
  options.set_jitter_ms(2);
  EnvironmentHarness env = MakeHarness(options);
  std::set<absl::Duration> delays;
  env.Reset(1);
  const absl::Duration first = env.Step<int64_t>(0).delay;
  for (int i = 0; i < 100; ++i) {
    const absl::Duration delay = env.Step<int64_t>(0).delay;
    EXPECT_GE(delay, absl::Milliseconds(1));
    EXPECT_LT(delay, absl::Milliseconds(3));
    delays.insert(delay);
  }
  EXPECT_GT(delays.size(), 90u);
  env.Reset(1);
  EXPECT_EQ(env.Step<int64_t>(0).delay, first);
}

TEST(SleepTest, OnlySlowWorkersAreSlow) {
  v1::SleepOptions options;
  options.set_step_ms(2);
  options.set_slow_workers(1);
  options.set_slow_factor(10);
  for (const auto& [worker, want_ms] : {std::pair(0, 20), std::pair(1, 2)}) {
    EnvironmentHarness env = MakeHarness(options, worker);
    env.Reset(1);
    EXPECT_EQ(env.Step<int64_t>(0).delay, absl::Milliseconds(want_ms));
  }
}

TEST(SleepTest, ObservationCountsSteps) {
  v1::SleepOptions options;
  options.set_observation_bytes(100);
  EnvironmentHarness env = MakeHarness(options);
  env.Reset(1);
  EXPECT_THAT(env.Observation<uint8_t>(), Each(0));
  env.Step<int64_t>(0);
  env.Step<int64_t>(1);
  EXPECT_EQ(env.Observation<uint8_t>().size(), 100u);
  EXPECT_THAT(env.Observation<uint8_t>(), Each(2));
}

TEST(SleepTest, OptionsOutOfRangeAreRefusedByName) {
  v1::SleepOptions options;
  options.set_step_ms(-1);
  EXPECT_THAT(Sleep::Make(options, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("env.options.sleep.step_ms is -1")));
  options.set_step_ms(std::nan(""));
  EXPECT_THAT(Sleep::Make(options, 0),
              StatusIs(absl::StatusCode::kInvalidArgument));
  options.set_step_ms(1);
  options.set_observation_bytes(0);
  EXPECT_THAT(Sleep::Make(options, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("observation_bytes is 0, want 1 to")));
}

}  // namespace
}  // namespace flotilla
