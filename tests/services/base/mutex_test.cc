#include "services/base/mutex.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <thread>
#include <vector>

namespace flotilla {
namespace {

TEST(MutexTest, AdmitsOneAtATime) {
  Mutex mu;
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) {
        MutexLock lock(&mu);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 40'000);
}

TEST(MutexTest, WaitReleasesTheLockUntilNotified) {
  Mutex mu;
  std::condition_variable changed;
  bool ready = false;
  std::thread notifier([&] {
    MutexLock lock(&mu);
    ready = true;
    changed.notify_one();
  });
  {
    MutexLock lock(&mu);
    while (!ready) lock.Wait(&changed);
  }
  notifier.join();
}

TEST(MutexTest, WaitForSaysWhenTheTimeIsUp) {
  Mutex mu;
  std::condition_variable never;
  MutexLock lock(&mu);
  EXPECT_FALSE(lock.WaitFor(&never, absl::Milliseconds(1)));
  EXPECT_FALSE(lock.WaitFor(&never, -absl::Seconds(1)));
}

TEST(MutexTest, WaitForTakesAnInfiniteTimeout) {
  Mutex mu;
  std::condition_variable changed;
  bool ready = false;
  std::thread notifier([&] {
    MutexLock lock(&mu);
    ready = true;
    changed.notify_one();
  });
  {
    MutexLock lock(&mu);
    while (!ready) {
      EXPECT_TRUE(lock.WaitFor(&changed, absl::InfiniteDuration()));
    }
  }
  notifier.join();
}

}  // namespace
}  // namespace flotilla
