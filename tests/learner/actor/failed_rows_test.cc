#include "learner/actor/failed_rows.h"

#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace flotilla {
namespace {

using testing::HasSubstr;

v1::EnvConfig Config(double share, double seconds) {
  v1::EnvConfig env;
  env.set_max_failed_share(share);
  env.set_failed_seconds(seconds);
  return env;
}

const absl::Time kStart = absl::FromUnixSeconds(1000000);

TEST(FailedRowsTest, CountsWhatWasLostLately) {
  FailedRows rows(Config(0.5, 20));
  EXPECT_EQ(rows.window(), absl::Seconds(20));
  for (int s = 0; s < 30; ++s) {
    rows.NoteBatch(10, s < 15 ? 10 : 1, kStart + absl::Seconds(s));
  }
  const auto recent = rows.Recent();
  EXPECT_EQ(recent.rows, 200);  // seconds 10 to 29
  EXPECT_EQ(recent.lost, 5 * 10 + 15);
  EXPECT_TRUE(recent.full);
  EXPECT_EQ(recent.share(), 65.0 / 200);
}

// As of an evaluation that is awaited, a generation that forms, a clock that is set.
TEST(FailedRowsTest, AnHourWithoutRolloutsMakesNoMomentOfFailureAWindow) {
  for (const absl::Duration passes : {absl::Hours(1), -absl::Hours(1)}) {
    FailedRows rows(Config(0.5, 20));
    absl::Time now = kStart;
    for (int s = 0; s < 30; ++s) rows.NoteBatch(10, 0, now += absl::Seconds(1));
    now += passes;
    rows.NoteBatch(10, 10, now);
    EXPECT_EQ(rows.Recent().lost, 10);
    EXPECT_GE(rows.Recent().rows, 150);
    EXPECT_FALSE(rows.TooMany());
    EXPECT_FALSE(rows.Alarming());
    for (int s = 0; s < 10; ++s)
      rows.NoteBatch(10, 10, now += absl::Seconds(1));
    EXPECT_TRUE(rows.TooMany());
  }
}

// Nor do short rollouts between long updates escape it.
TEST(FailedRowsTest, RolloutsOfASecondFillAWindowAfterSome) {
  FailedRows rows(Config(0.5, 20));
  int rollouts = 0;
  for (absl::Time now = kStart; !rows.TooMany(); now += absl::Minutes(1)) {
    ASSERT_LT(++rollouts, 30);
    for (int i = 0; i < 4; ++i) {
      rows.NoteBatch(10, 10, now += absl::Milliseconds(250));
    }
  }
  EXPECT_GE(rollouts, 4);
}

TEST(FailedRowsTest, TooManyOnlyOnceTheWindowIsFullAndAboveTheShare) {
  FailedRows rows(Config(0.5, 20));
  bool too_many = false;
  for (int s = 0; s < 20; ++s) {
    const absl::Time now = kStart + absl::Seconds(s);
    rows.NoteBatch(10, 6, now);
    rows.NoteFailure("it broke", "", now);
    too_many |= rows.TooMany();
  }
  EXPECT_FALSE(too_many);
  rows.NoteBatch(10, 6, kStart + absl::Seconds(20));
  EXPECT_TRUE(rows.TooMany());
  // Half is not above half.
  for (int s = 21; s < 41; ++s)
    rows.NoteBatch(10, 5, kStart + absl::Seconds(s));
  EXPECT_FALSE(rows.TooMany());
}

TEST(FailedRowsTest, AShareOfOneIsNeverTooMany) {
  FailedRows rows(Config(1, 20));
  for (int s = 0; s < 60; ++s) {
    rows.NoteBatch(4, 4, kStart + absl::Seconds(s));
    rows.NoteFailure("it broke", "", kStart);
  }
  EXPECT_FALSE(rows.TooMany());
  // But ranks are to hear of it.
  EXPECT_TRUE(rows.Alarming());
  rows.NoteBatch(4, 3, kStart + absl::Seconds(60));
  EXPECT_FALSE(rows.Alarming());
}

TEST(FailedRowsTest, TheNewestFailureIsTroubleForAMinute) {
  FailedRows rows(Config(0.5, 20));
  EXPECT_EQ(rows.newest(), "no reason was given");
  EXPECT_EQ(rows.Trouble(kStart), "");
  rows.NoteFailure("first", "", kStart);
  rows.NoteFailure("second", "Traceback\n  line", kStart);
  EXPECT_EQ(rows.failed(), 2);
  EXPECT_EQ(rows.newest(), "second\nTraceback\n  line");
  // It does not change with each: people are told of every change.
  EXPECT_EQ(rows.Trouble(kStart + absl::Seconds(59)),
            "1 environment rows failed; the newest: first");
  rows.NoteFailure("third", "", kStart + absl::Seconds(10));
  EXPECT_EQ(rows.Trouble(kStart + absl::Seconds(60)),
            "3 environment rows failed; the newest: third");
  EXPECT_EQ(rows.Trouble(kStart + absl::Seconds(71)), "");
}

TEST(FailedRowsTest, TheLogIsBounded) {
  FailedRows rows(Config(0.5, 20));
  testing::internal::CaptureStderr();
  FLAGS_logtostderr = true;
  for (int i = 0; i < 100000; ++i) {
    rows.NoteFailure("it broke", "Traceback",
                     kStart + i * absl::Milliseconds(1));
  }
  google::FlushLogFiles(google::GLOG_INFO);
  const std::string log = testing::internal::GetCapturedStderr();
  // 100 seconds: a line in ten, and the traceback with it.
  EXPECT_LT(log.size(), 10 * 300u);
  EXPECT_THAT(log, HasSubstr("it broke (and 9999 before it"));
}

}  // namespace
}  // namespace flotilla
