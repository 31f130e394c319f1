#include "services/base/shutdown.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <condition_variable>
#include <memory>
#include <stop_token>

#include "services/base/mutex.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

// Blocks until `token` stops; false after 10 s.
bool WaitForStop(std::stop_token token) {
  Mutex mu;
  std::condition_variable changed;
  bool stopped = false;
  std::stop_callback callback(token, [&] {
    MutexLock lock(&mu);
    stopped = true;
    changed.notify_all();
  });
  MutexLock lock(&mu);
  while (!stopped) {
    if (!lock.WaitFor(&changed, absl::Seconds(10))) return stopped;
  }
  return true;
}

TEST(ShutdownSignalsTest, EachSignalStopsAndIsNamed) {
  for (int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP}) {
    ASSERT_OK_AND_ASSIGN(auto signals, ShutdownSignals::Install());
    EXPECT_FALSE(signals->Stop().stop_requested());
    EXPECT_EQ(signals->first_signal(), 0);
    raise(signal);
    EXPECT_TRUE(WaitForStop(signals->Stop()));
    EXPECT_EQ(signals->first_signal(), signal);
    EXPECT_EQ(signals->signals(), 1);
    EXPECT_FALSE(signals->StopNow().stop_requested());
  }
}

TEST(ShutdownSignalsTest, SecondInterruptStopsAtOnce) {
  ASSERT_OK_AND_ASSIGN(auto signals, ShutdownSignals::Install());
  raise(SIGTERM);
  raise(SIGINT);
  EXPECT_TRUE(WaitForStop(signals->Stop()));
  EXPECT_FALSE(signals->StopNow().stop_requested());
  raise(SIGINT);
  EXPECT_TRUE(WaitForStop(signals->StopNow()));
  EXPECT_EQ(signals->first_signal(), SIGTERM);
  EXPECT_EQ(signals->interrupts(), 2);
  EXPECT_EQ(signals->signals(), 3);
}

TEST(ShutdownSignalsTest, ThereIsOneAtATime) {
  ASSERT_OK_AND_ASSIGN(auto signals, ShutdownSignals::Install());
  EXPECT_THAT(ShutdownSignals::Install(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  signals.reset();
  EXPECT_OK(ShutdownSignals::Install());
}

TEST(ShutdownSignalsTest, UnderNohupAClosedTerminalIsNoReasonToStop) {
  const auto before = signal(SIGHUP, SIG_IGN);
  {
    ASSERT_OK_AND_ASSIGN(auto signals, ShutdownSignals::Install());
    raise(SIGHUP);
    raise(SIGTERM);
    EXPECT_TRUE(WaitForStop(signals->Stop()));
    EXPECT_EQ(signals->first_signal(), SIGTERM);
  }
  EXPECT_EQ(signal(SIGHUP, before), SIG_IGN);
}

volatile sig_atomic_t g_seen = 0;

TEST(ShutdownSignalsTest, GivesBackThePreviousHandlers) {
  struct sigaction mine = {}, previous;
  mine.sa_handler = [](int) { g_seen = g_seen + 1; };
  sigaction(SIGUSR1, &mine, &previous);
  {
    ASSERT_OK_AND_ASSIGN(auto signals, ShutdownSignals::Install());
    raise(SIGUSR1);
    EXPECT_TRUE(WaitForStop(signals->Stop()));
  }
  EXPECT_EQ(g_seen, 0);
  raise(SIGUSR1);
  EXPECT_EQ(g_seen, 1);
  sigaction(SIGUSR1, &previous, nullptr);
}

}  // namespace
}  // namespace flotilla
