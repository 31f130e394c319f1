#include "learner/collective/coordinator_store.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/testing/fake_coordinator_client.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using std::chrono::milliseconds;

class CoordinatorStoreTest : public ::testing::Test {
 protected:
  c10::intrusive_ptr<CoordinatorStore> Store(
      uint64_t generation = 1, milliseconds timeout = milliseconds(10'000)) {
    return c10::make_intrusive<CoordinatorStore>(&coordinator_, generation,
                                                 timeout);
  }

  TempDir folder_;
  FakeCoordinatorClient coordinator_{folder_.path()};
};

const std::vector<uint8_t> kBytes = {0, 1, 255, 0, 'x'};

TEST_F(CoordinatorStoreTest, GetReturnsWhatWasSet) {
  const auto store = Store();
  store->set("key", kBytes);
  EXPECT_EQ(store->get("key"), kBytes);
  store->set("key", std::string("again"));
  EXPECT_EQ(store->get_to_str("key"), "again");
}

TEST_F(CoordinatorStoreTest, GetBlocksUntilSomebodySets) {
  const auto store = Store();
  std::thread setter([other = store->clone()] { other->set("key", kBytes); });
  EXPECT_EQ(store->get("key"), kBytes);
  setter.join();
}

TEST_F(CoordinatorStoreTest, WaitAndCheckLookForAllKeys) {
  const auto store = Store();
  store->set("a", kBytes);
  EXPECT_TRUE(store->check({"a"}));
  EXPECT_FALSE(store->check({"a", "b"}));
  EXPECT_THROW(store->wait({"a", "b"}, milliseconds(10)), c10::DistStoreError);
  EXPECT_TRUE(absl::IsDeadlineExceeded(store->error())) << store->error();
  store->set("b", kBytes);
  store->wait({"a", "b"});
}

TEST_F(CoordinatorStoreTest, AddCounts) {
  const auto store = Store();
  EXPECT_EQ(store->add("n", 3), 3);
  EXPECT_EQ(store->add("n", -1), 2);
  EXPECT_EQ(store->get_to_str("n"), "2");
}

TEST_F(CoordinatorStoreTest, CompareSetSetsOnlyWhatIsExpected) {
  const auto store = Store();
  EXPECT_EQ(store->compareSet("key", std::string(), std::string("a")), "a");
  EXPECT_EQ(store->compareSet("key", std::string(), std::string("b")), "a");
  EXPECT_EQ(store->compareSet("key", std::string("x"), std::string("b")), "a");
  EXPECT_EQ(store->compareSet("key", std::string("a"), std::string("b")), "b");
}

TEST_F(CoordinatorStoreTest, DeletesAndCounts) {
  const auto store = Store();
  store->set("a", kBytes);
  store->set("b", kBytes);
  EXPECT_EQ(store->getNumKeys(), 2);
  EXPECT_TRUE(store->deleteKey("a"));
  EXPECT_FALSE(store->deleteKey("a"));
  EXPECT_EQ(store->getNumKeys(), 1);
}

TEST_F(CoordinatorStoreTest, GenerationsDoNotSeeEachOther) {
  Store(1)->set("key", kBytes);
  EXPECT_FALSE(Store(2)->check({"key"}));
}

TEST_F(CoordinatorStoreTest, AFenceEndsAWaitAndIsRemembered) {
  const auto store = Store();
  std::thread fencer(
      [&] { ASSERT_TRUE(coordinator_.ReportFailure(1, "test").ok()); });
  EXPECT_THROW(store->get("never"), c10::DistStoreError);
  fencer.join();
  EXPECT_TRUE(absl::IsAborted(store->error())) << store->error();
}

TEST_F(CoordinatorStoreTest, ACloneSharesTheFirstError) {
  const auto store = Store(1, milliseconds(10));
  EXPECT_THROW(store->clone()->get("never"), c10::DistStoreError);
  EXPECT_TRUE(absl::IsDeadlineExceeded(store->error())) << store->error();
}

}  // namespace
}  // namespace flotilla
