#include "services/coordinator/kv_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

class KvStoreTest : public ::testing::Test {
 protected:
  // Waits for `keys`; what it ended with appears in the result.
  struct Result {
    std::optional<absl::StatusOr<std::string>> value;
    uint64_t number = 0;
  };
  void Wait(uint64_t generation, const std::vector<std::string>& keys,
            Result* result, absl::Duration timeout = absl::Seconds(10)) {
    result->number = store_.Wait(generation, keys, clock_.Now() + timeout,
                                 [result](absl::StatusOr<std::string> value) {
                                   ASSERT_FALSE(result->value.has_value())
                                       << "called twice";
                                   result->value = std::move(value);
                                 });
  }

  // What Get gives at once.
  absl::StatusOr<std::string> Get(uint64_t generation, const std::string& key) {
    Result result;
    Wait(generation, {key}, &result, absl::ZeroDuration());
    store_.Expire(clock_.Now());
    return *result.value;
  }

  FakeClock clock_;
  KvStore store_;
};

TEST_F(KvStoreTest, GetsWhatWasSet) {
  ASSERT_OK(store_.Set(1, "key", std::string("a\0b", 3)));
  ASSERT_OK_AND_ASSIGN(const std::string value, Get(1, "key"));
  EXPECT_EQ(value, std::string("a\0b", 3));
  ASSERT_OK(store_.Set(1, "key", "later"));
  ASSERT_OK_AND_ASSIGN(const std::string later, Get(1, "key"));
  EXPECT_EQ(later, "later");
}

TEST_F(KvStoreTest, GenerationsAreApart) {
  ASSERT_OK(store_.Set(1, "key", "one"));
  ASSERT_OK(store_.Set(2, "key", "two"));
  ASSERT_OK_AND_ASSIGN(const std::string one, Get(1, "key"));
  EXPECT_EQ(one, "one");
  EXPECT_THAT(Get(3, "key"), StatusIs(StatusCode::kDeadlineExceeded));
}

TEST_F(KvStoreTest, WaiterGetsAValueThatComesLater) {
  Result result;
  Wait(1, {"key"}, &result);
  EXPECT_FALSE(result.value.has_value());
  ASSERT_OK(store_.Set(1, "other", "x"));
  ASSERT_OK(store_.Set(2, "key", "x"));
  EXPECT_FALSE(result.value.has_value());
  ASSERT_OK(store_.Set(1, "key", "value"));
  EXPECT_EQ(result.value->value(), "value");
}

TEST_F(KvStoreTest, WaitIsForAllKeysInAnyOrder) {
  Result result;
  Wait(1, {"a", "b", "c"}, &result);
  ASSERT_OK(store_.Set(1, "c", "3"));
  ASSERT_OK(store_.Set(1, "a", "1"));
  EXPECT_FALSE(result.value.has_value());
  ASSERT_OK(store_.Add(1, "b", 2));
  EXPECT_EQ(result.value->value(), "1");
}

TEST_F(KvStoreTest, WaitForNothingIsOver) {
  Result result;
  Wait(1, {}, &result);
  EXPECT_OK(*result.value);
}

TEST_F(KvStoreTest, KeyThatIsDeletedMeanwhileIsWaitedForAgain) {
  Result result;
  Wait(1, {"a", "b"}, &result);
  ASSERT_OK(store_.Set(1, "a", "1"));
  ASSERT_OK(store_.Delete(1, "a"));
  ASSERT_OK(store_.Set(1, "b", "2"));
  EXPECT_FALSE(result.value.has_value());
  ASSERT_OK(store_.Set(1, "a", "3"));
  EXPECT_EQ(result.value->value(), "3");
}

TEST_F(KvStoreTest, DeadlineNamesTheFirstKeyThatIsMissing) {
  Result result;
  Wait(1, {"a", "b"}, &result, absl::Seconds(5));
  ASSERT_OK(store_.Set(1, "a", ""));
  store_.Expire(clock_.Advance(absl::Seconds(4.9)));
  EXPECT_FALSE(result.value.has_value());
  store_.Expire(clock_.Advance(absl::Seconds(0.1)));
  EXPECT_THAT(*result.value,
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("\"b\""), HasSubstr("generation 1"))));
  ASSERT_OK(store_.Set(1, "b", ""));  // nobody is called
}

TEST_F(KvStoreTest, FenceFailsWaitersOfThatGenerationAndBefore) {
  Result one, two, three;
  Wait(1, {"key"}, &one);
  Wait(2, {"key"}, &two);
  Wait(3, {"key"}, &three);
  store_.Fence(2, "rank 1 died");
  EXPECT_THAT(*one.value,
              StatusIs(StatusCode::kAborted, HasSubstr("rank 1 died")));
  EXPECT_THAT(*two.value, StatusIs(StatusCode::kAborted));
  EXPECT_FALSE(three.value.has_value());
  ASSERT_OK(store_.Set(3, "key", "v"));
  EXPECT_OK(*three.value);
}

TEST_F(KvStoreTest, EveryCallOnAFencedGenerationIsAborted) {
  ASSERT_OK(store_.Set(1, "key", "v"));
  store_.Fence(1, "rank 1 died");
  const auto aborted = StatusIs(StatusCode::kAborted, HasSubstr("rank 1 died"));
  EXPECT_THAT(store_.Set(1, "key", "v"), aborted);
  EXPECT_THAT(store_.Add(1, "key", 1), aborted);
  EXPECT_THAT(store_.CompareSet(1, "key", "", "v"), aborted);
  EXPECT_THAT(store_.Check(1, {"key"}), aborted);
  EXPECT_THAT(store_.Delete(1, "key"), aborted);
  EXPECT_THAT(store_.Count(1), aborted);
  EXPECT_THAT(Get(1, "key"), aborted);
}

TEST_F(KvStoreTest, FencesNeverGoBack) {
  store_.Fence(3, "later");
  store_.Fence(1, "earlier");
  EXPECT_THAT(store_.Set(3, "key", "v"),
              StatusIs(StatusCode::kAborted, HasSubstr("later")));
  EXPECT_OK(store_.Set(4, "key", "v"));
}

TEST_F(KvStoreTest, AddCountsFromZeroAndIsTextUnderGet) {
  ASSERT_OK_AND_ASSIGN(int64_t sum, store_.Add(1, "n", 3));
  EXPECT_EQ(sum, 3);
  ASSERT_OK_AND_ASSIGN(sum, store_.Add(1, "n", -5));
  EXPECT_EQ(sum, -2);
  ASSERT_OK_AND_ASSIGN(const std::string text, Get(1, "n"));
  EXPECT_EQ(text, "-2");
}

TEST_F(KvStoreTest, AddRefusesWhatIsNoNumberAndOverflow) {
  ASSERT_OK(store_.Set(1, "n", "abc"));
  EXPECT_THAT(store_.Add(1, "n", 1),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("\"n\"")));
  ASSERT_OK(store_.Set(1, "n", absl::StrCat(INT64_MAX)));
  EXPECT_THAT(store_.Add(1, "n", 1), StatusIs(StatusCode::kOutOfRange));
  ASSERT_OK_AND_ASSIGN(const std::string text, Get(1, "n"));
  EXPECT_EQ(text, absl::StrCat(INT64_MAX));
}

TEST_F(KvStoreTest, CompareSetWithNothingExpectedSetsOnlyWhatIsAbsent) {
  ASSERT_OK_AND_ASSIGN(std::string now, store_.CompareSet(1, "k", "", "a"));
  EXPECT_EQ(now, "a");
  ASSERT_OK_AND_ASSIGN(now, store_.CompareSet(1, "k", "", "b"));
  EXPECT_EQ(now, "a");
}

TEST_F(KvStoreTest, CompareSetReplacesOnlyWhatIsExpected) {
  ASSERT_OK(store_.Set(1, "k", "a"));
  ASSERT_OK_AND_ASSIGN(std::string now, store_.CompareSet(1, "k", "x", "b"));
  EXPECT_EQ(now, "a");
  ASSERT_OK_AND_ASSIGN(now, store_.CompareSet(1, "k", "a", "b"));
  EXPECT_EQ(now, "b");
  ASSERT_OK_AND_ASSIGN(now, store_.CompareSet(1, "absent", "x", "b"));
  EXPECT_EQ(now, "");
  ASSERT_OK_AND_ASSIGN(const bool there, store_.Check(1, {"absent"}));
  EXPECT_FALSE(there);
}

TEST_F(KvStoreTest, CheckDeleteAndCountTellWhatIsThere) {
  ASSERT_OK_AND_ASSIGN(int64_t count, store_.Count(1));
  EXPECT_EQ(count, 0);
  ASSERT_OK(store_.Set(1, "a", ""));
  ASSERT_OK(store_.Set(1, "b", ""));
  ASSERT_OK_AND_ASSIGN(count, store_.Count(1));
  EXPECT_EQ(count, 2);
  ASSERT_OK_AND_ASSIGN(bool all, store_.Check(1, {"a", "b"}));
  EXPECT_TRUE(all);
  ASSERT_OK_AND_ASSIGN(bool deleted, store_.Delete(1, "a"));
  EXPECT_TRUE(deleted);
  ASSERT_OK_AND_ASSIGN(deleted, store_.Delete(1, "a"));
  EXPECT_FALSE(deleted);
  ASSERT_OK_AND_ASSIGN(all, store_.Check(1, {"a", "b"}));
  EXPECT_FALSE(all);
}

TEST_F(KvStoreTest, KeysAndValuesHaveALimit) {
  const std::string key(KvStore::kMaxKeyBytes, 'k');
  EXPECT_OK(store_.Set(1, key, ""));
  EXPECT_THAT(store_.Set(1, key + "k", ""),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("1025 bytes")));
  EXPECT_THAT(Get(1, key + "k"), StatusIs(StatusCode::kInvalidArgument));
  const std::string value(KvStore::kMaxValueBytes, 'v');
  EXPECT_OK(store_.Set(1, "k", value));
  EXPECT_THAT(
      store_.Set(1, "k", value + "v"),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("1048577 bytes")));
}

TEST_F(KvStoreTest, TotalHasALimitThatDeletingAndFencingFreeUp) {
  const std::string value(KvStore::kMaxValueBytes, 'v');
  int held = 0;
  absl::Status status;
  while (status.ok() && held < 1000) {
    status = store_.Set(1, absl::StrCat(held), value);
    held += status.ok();
  }
  EXPECT_EQ(held, 63);  // entries cost a little more than their bytes
  EXPECT_THAT(status, StatusIs(StatusCode::kResourceExhausted));
  EXPECT_OK(store_.Set(1, "0", value));  // replacing needs no more
  ASSERT_OK(store_.Delete(1, "0"));
  EXPECT_OK(store_.Set(1, "again", value));
  EXPECT_THAT(store_.Set(2, "more", value),
              StatusIs(StatusCode::kResourceExhausted));
  store_.Fence(1, "over");
  for (int i = 0; i < 63; ++i) ASSERT_OK(store_.Set(2, absl::StrCat(i), value));
}

TEST_F(KvStoreTest, WhatAllWaitForHasALimitThatEndingWaitsFreeUp) {
  const std::vector<std::string> megabyte(1024, std::string(960, 'k'));
  std::vector<Result> results(100);
  for (Result& result : results) Wait(1, megabyte, &result);
  for (size_t i = 0; i < results.size(); ++i) {
    const bool waits = i < KvStore::kMaxWaitingBytes >> 20;
    ASSERT_EQ(results[i].value.has_value(), !waits) << i;
    if (waits) continue;
    EXPECT_THAT(*results[i].value, StatusIs(StatusCode::kResourceExhausted,
                                            HasSubstr("too many to wait for")));
  }
  Result again;
  EXPECT_TRUE(store_.Cancel(results[0].number));
  Wait(1, megabyte, &again);
  EXPECT_FALSE(again.value.has_value());
  store_.Expire(clock_.Advance(absl::Hours(1)));
  std::vector<Result> others(64);
  for (Result& result : others) Wait(2, megabyte, &result);
  EXPECT_FALSE(others.back().value.has_value());
  store_.Fence(2, "over");
  Result last;
  Wait(3, megabyte, &last);
  EXPECT_FALSE(last.value.has_value());
}

TEST_F(KvStoreTest, CancelledWaiterIsNotCalled) {
  Result result;
  Wait(1, {"key"}, &result);
  EXPECT_TRUE(store_.Cancel(result.number));
  EXPECT_FALSE(store_.Cancel(result.number));
  ASSERT_OK(store_.Set(1, "key", "v"));
  store_.Expire(clock_.Advance(absl::Hours(1)));
  EXPECT_FALSE(result.value.has_value());
}

TEST_F(KvStoreTest, FailAllEndsEveryWait) {
  Result one, two;
  Wait(1, {"a"}, &one);
  Wait(2, {"b"}, &two);
  store_.FailAll(absl::UnavailableError("going down"));
  EXPECT_THAT(*one.value, StatusIs(StatusCode::kUnavailable, "going down"));
  EXPECT_THAT(*two.value, StatusIs(StatusCode::kUnavailable));
  EXPECT_OK(store_.Set(1, "a", ""));
}

TEST_F(KvStoreTest, CallbackMayUseTheStore) {
  bool called = false;
  store_.Wait(1, {"a"}, absl::InfiniteFuture(),
              [&](absl::StatusOr<std::string>) {
                called = true;
                EXPECT_OK(store_.Set(1, "b", ""));
              });
  ASSERT_OK(store_.Set(1, "a", ""));
  EXPECT_TRUE(called);
}

// A barrier, as learners make one.
TEST_F(KvStoreTest, ManyThreadsMeetAtABarrier) {
  constexpr int kThreads = 8, kRounds = 200;
  std::atomic<int> passed = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const std::string name = absl::StrCat("barrier", round);
        auto open = std::make_shared<std::latch>(1);
        if (*store_.Add(1, name, 1) == kThreads) {
          (void)store_.Set(1, name + "/open", "");
        }
        store_.Wait(1, {name + "/open"}, absl::InfiniteFuture(),
                    [&passed, open](absl::StatusOr<std::string> value) {
                      passed += value.ok();
                      open->count_down();
                    });
        open->wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(passed, kThreads * kRounds);
}

}  // namespace
}  // namespace flotilla
