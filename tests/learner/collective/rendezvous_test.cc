#include "learner/collective/rendezvous.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/services/coordinator/coordinator_fixture.h"
#include "tests/testing/ports.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Minutes(1);

// Two learners, each in a thread, against the real service.
class RendezvousTest : public ::testing::Test {
 protected:
  RendezvousTest() {
    options_.journal = folder_ / "journal";
    coordinator_ =
        std::make_unique<TestCoordinator>(options_, AddressToListenAt());
    for (int i = 0; i < 2; ++i) {
      auto client = JoinRun(coordinator_->address(), TestLearner(i), {}, kLong,
                            kTestSecret);
      CHECK(client.ok()) << client.status();
      clients_.push_back(*std::move(client));
    }
    Both([this](int rank) {
      auto place = clients_[rank]->JoinGeneration(0, false, kLong);
      ASSERT_OK(place);
      places_[rank] = *std::move(place);
    });
  }

  static void Both(const std::function<void(int)>& body) {
    std::thread other([&] { body(1); });
    body(0);
    other.join();
  }

  // Gone without a word; another takes its port, and knows the journal alone.
  void RestartCoordinator() {
    const std::string address = coordinator_->address();
    coordinator_.reset();
    coordinator_ = std::make_unique<TestCoordinator>(options_, address);
  }

  auto Exchange(int rank, const std::string& value,
                absl::Duration timeout = kLong) {
    return ExchangeAll(places_[rank], clients_[rank].get(), "topic", value,
                       timeout);
  }

  TempDir folder_;
  CoordinatorServiceOptions options_ = TestCoordinator::Options(2, 2);
  std::unique_ptr<TestCoordinator> coordinator_;
  std::vector<std::unique_ptr<CoordinatorClient>> clients_;
  v1::Assignment places_[2];
};

TEST_F(RendezvousTest, EachHearsWhatEachSays) {
  Both([this](int rank) {
    const auto heard = Exchange(rank, rank == 0 ? "zero" : "one");
    ASSERT_OK(heard);
    EXPECT_THAT(*heard, ElementsAre("zero", "one"));
  });
}

TEST_F(RendezvousTest, WhatACoordinatorForgotIsSaidAgain) {
  Both([this](int rank) {
    if (rank == 1) {
      // Once rank 0 has spoken.
      ASSERT_OK(clients_[1]->Wait(places_[1].generation(),
                                  {"collective/topic/0"}, kLong));
      RestartCoordinator();
    }
    const auto heard = Exchange(rank, rank == 0 ? "zero" : "one");
    ASSERT_OK(heard);
    EXPECT_THAT(*heard, ElementsAre("zero", "one"));
  });
}

TEST_F(RendezvousTest, SoIsWhatWasSaidBeforeToWhoHasNotHeardIt) {
  Both([this](int rank) {
    if (rank == 1) {
      // Once rank 0 has heard all of the first topic, and rank 1 nothing.
      const uint64_t generation = places_[1].generation();
      ASSERT_OK(clients_[1]->Set(generation, "collective/first/1", "one"));
      ASSERT_OK(clients_[1]->Wait(generation, {"collective/second/0"}, kLong));
      RestartCoordinator();
    }
    Told told;
    for (const char* topic : {"first", "second"}) {
      const auto heard = ExchangeAll(places_[rank], clients_[rank].get(), topic,
                                     rank == 0 ? "zero" : "one", kLong, &told);
      ASSERT_OK(heard);
      EXPECT_THAT(*heard, ElementsAre("zero", "one"));
    }
  });
}

TEST_F(RendezvousTest, WhoDoesNotComeIsNamed) {
  const auto heard = Exchange(0, "zero", absl::Seconds(3));
  EXPECT_TRUE(absl::IsDeadlineExceeded(heard.status()));
  EXPECT_THAT(std::string(heard.status().message()),
              HasSubstr("have not come to topic: rank 1 (learner/0/1 on here"));
}

}  // namespace
}  // namespace flotilla
