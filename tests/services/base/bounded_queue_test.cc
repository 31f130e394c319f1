#include "services/base/bounded_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

namespace flotilla {
namespace {

TEST(BoundedQueueTest, GivesItemsInTheOrderTheyCame) {
  BoundedQueue<int> queue(3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.Push(i));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(queue.Pop(), i);
}

TEST(BoundedQueueTest, FullQueueHoldsItsProducerBack) {
  BoundedQueue<int> queue(1);
  ASSERT_TRUE(queue.Push(1));
  std::atomic<bool> popped = false;
  std::thread producer([&] {
    EXPECT_TRUE(queue.Push(2));
    EXPECT_TRUE(popped);  // there was no room before
  });
  popped = true;
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), 2);
  producer.join();
}

TEST(BoundedQueueTest, CloseWakesAWaitingConsumer) {
  BoundedQueue<int> queue(1);
  std::thread consumer([&] { EXPECT_EQ(queue.Pop(), std::nullopt); });
  queue.Close();
  consumer.join();
}

TEST(BoundedQueueTest, CloseWakesAWaitingProducerAndDropsItsItem) {
  BoundedQueue<int> queue(1);
  ASSERT_TRUE(queue.Push(1));
  std::thread producer([&] { EXPECT_FALSE(queue.Push(2)); });
  queue.Close();
  producer.join();
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

TEST(BoundedQueueTest, ClosedQueueDrainsThenEnds) {
  BoundedQueue<int> queue(2);
  ASSERT_TRUE(queue.Push(1));
  queue.Close();
  queue.Close();
  EXPECT_FALSE(queue.Push(2));
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

TEST(BoundedQueueTest, CarriesWhatCanOnlyBeMoved) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  ASSERT_TRUE(queue.Push(std::make_unique<int>(7)));
  EXPECT_EQ(**queue.Pop(), 7);
}

TEST(BoundedQueueTest, ManyThreadsLoseAndRepeatNothing) {
  constexpr int kProducers = 4, kConsumers = 3, kEach = 2000;
  BoundedQueue<int> queue(5);
  std::vector<std::thread> producers, consumers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      for (int i = 0; i < kEach; ++i) queue.Push(p * kEach + i);
    });
  }
  std::vector<std::vector<int>> got(kConsumers);
  for (int c = 0; c < kConsumers; ++c) {
    consumers.emplace_back([&, c] {
      while (std::optional<int> item = queue.Pop()) got[c].push_back(*item);
    });
  }
  for (std::thread& thread : producers) thread.join();
  queue.Close();
  for (std::thread& thread : consumers) thread.join();

  std::set<int> all;
  size_t count = 0;
  for (const std::vector<int>& items : got) {
    all.insert(items.begin(), items.end());
    count += items.size();
  }
  EXPECT_EQ(count, kProducers * kEach);
  EXPECT_EQ(all.size(), kProducers * kEach);
}

}  // namespace
}  // namespace flotilla
