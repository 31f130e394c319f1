#include "learner/training/phase_reporter.h"

#include <atomic>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/steady_now.h"
#include "tests/testing/fake_coordinator_client.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using testing::HasSubstr;

class PhaseReporterTest : public testing::Test {
 protected:
  void Start(double progress_timeout_seconds = 0) {
    v1::RunConfig config;
    config.mutable_distributed()->set_heartbeat_seconds(0.002);
    config.mutable_distributed()->set_timeout_seconds(0.01);
    config.mutable_runtime()->set_progress_timeout_seconds(
        progress_timeout_seconds);
    phases_.emplace(
        config, "learner/0/1", &coordinator_,
        [this](v1::Heartbeat* beat) {
          ++described_;
          beat->set_env_steps(42);
        },
        [this](v1::Heartbeat* beat) {
          beat->set_failed_rows(failed_rows_);
          beat->add_env_worker();
        },
        [this](const absl::Status& status) {
          hung_ = std::string(status.message());
          hangs_ = true;
        });
  }

  // Returns whether `what` has come true in time.
  static bool Soon(const std::function<bool()>& what) {
    const absl::Time deadline = SteadyNow() + absl::Seconds(20);
    while (!what() && SteadyNow() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    return what();
  }

  TempDir folder_;
  FakeCoordinatorClient coordinator_{folder_.path()};
  int described_ = 0;
  std::atomic<int64_t> failed_rows_ = 0;
  std::atomic<bool> hangs_ = false;
  std::string hung_;
  std::optional<PhaseReporter> phases_;
};

TEST_F(PhaseReporterTest, APhaseIsReportedAtOnceWithWhatItWaitsFor) {
  Start();
  phases_->Enter(v1::EVALUATING, 7, "the evaluation of update 4");
  const v1::Heartbeat beat = coordinator_.last_report();
  EXPECT_EQ(beat.phase(), v1::EVALUATING);
  EXPECT_EQ(beat.update(), 7);
  EXPECT_EQ(beat.waits_for(), "the evaluation of update 4");
  EXPECT_EQ(beat.env_steps(), 42);
}

TEST_F(PhaseReporterTest, WhatChangesMeanwhileIsReportedWithTheNextHeartbeats) {
  Start();
  phases_->Enter(v1::STEPPING, 7, "environments");
  EXPECT_EQ(coordinator_.last_report().failed_rows(), 0);
  failed_rows_ = 3;
  EXPECT_TRUE(
      Soon([&] { return coordinator_.last_report().failed_rows() == 3; }));
  // The rest is as it was.
  const v1::Heartbeat beat = coordinator_.last_report();
  EXPECT_EQ(beat.phase(), v1::STEPPING);
  EXPECT_EQ(beat.waits_for(), "environments");
  EXPECT_EQ(beat.update(), 7);
  EXPECT_EQ(beat.env_worker_size(), 1);
  EXPECT_GT(beat.phase_seconds(), 0);
  EXPECT_EQ(described_, 1);
}

TEST_F(PhaseReporterTest, ARolloutThatDoesNotEndIsSaidToHang) {
  Start(/*progress_timeout_seconds=*/0.02);
  phases_->Enter(v1::STEPPING, 7, "environments");
  ASSERT_TRUE(Soon([&] { return hangs_.load(); }));
  EXPECT_THAT(hung_, HasSubstr("learner/0/1: the rollout of update 7 has not"));
}

TEST_F(PhaseReporterTest, AnEvaluationMayTakeAsLongAsItLikes) {
  // Where this thread has no core between the two phases, it learns for too
  // long, and begins anew.
  absl::Time began;
  do {
    phases_.reset();
    hangs_ = false;
    Start(/*progress_timeout_seconds=*/0.02);
    began = SteadyNow();
    phases_->Enter(v1::LEARNING, 7, "");
    phases_->Enter(v1::EVALUATING, 7, "the evaluation of update 4");
  } while (SteadyNow() - began >= absl::Milliseconds(20));
  // 50 heartbeats of 2 ms: five times the limit.
  const size_t reported = coordinator_.phases().size();
  ASSERT_TRUE(
      Soon([&] { return coordinator_.phases().size() >= reported + 50; }));
  EXPECT_FALSE(hangs_);
}

}  // namespace
}  // namespace flotilla
