#include "services/coordinator/change_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::HasSubstr;

v1::Change Wanted(const std::string& text) {
  v1::Change change;
  change.add_override(text);
  return change;
}

v1::Change Agreed(int64_t number, const std::string& text, int64_t update) {
  v1::Change change = Wanted(text);
  change.set_number(number);
  change.set_update(update);
  return change;
}

ChangeList::Changes List(const std::vector<v1::Change>& changes) {
  return {changes.begin(), changes.end()};
}

TEST(ChangeListTest, AChangeGetsItsUpdateFromTheRanks) {
  ChangeList list;
  const auto ticket = list.Add(Wanted("ppo.epochs=2"));
  ASSERT_OK(ticket.status());
  EXPECT_EQ(list.Find(*ticket)->number(), 1);
  EXPECT_EQ(list.Find(*ticket)->update(), 0);
  EXPECT_TRUE(list.Take(List({Agreed(1, "ppo.epochs=2", 31)})));
  EXPECT_EQ(list.Find(*ticket)->update(), 31);
  // It is told again and again.
  EXPECT_FALSE(list.Take(List({Agreed(1, "ppo.epochs=2", 31)})));
  EXPECT_FALSE(list.Take(List({})));
  EXPECT_EQ(list.Find(*ticket)->update(), 31);
}

// A resumed run's ranks know of changes that its new coordinator does not.
TEST(ChangeListTest, WhatTheRanksHadAgreedOnBeforeComesFirst) {
  ChangeList list;
  const auto ticket = list.Add(Wanted("ppo.epochs=2"));
  ASSERT_OK(ticket.status());
  EXPECT_TRUE(list.Take(List({Agreed(1, "ppo.entropy_cost=0", 5),
                              Agreed(2, "ppo.entropy_cost=1", 9)})));
  EXPECT_EQ(list.All().size(), 3);
  EXPECT_EQ(list.Find(*ticket)->number(), 3);
  EXPECT_EQ(list.Find(*ticket)->update(), 0);
  EXPECT_EQ(list.Find(*ticket)->override(0), "ppo.epochs=2");
}

TEST(ChangeListTest, ARankThatHasNotCommittedYetTakesNothingBack) {
  ChangeList list;
  EXPECT_TRUE(list.Take(
      List({Agreed(1, "ppo.epochs=2", 5), Agreed(2, "ppo.epochs=3", 9)})));
  EXPECT_FALSE(list.Take(List({Agreed(1, "ppo.epochs=2", 5)})));
  EXPECT_EQ(list.All().size(), 2);
}

TEST(ChangeListTest, AnotherListGoesOnFromWhatThisOneHeld) {
  ChangeList list, next;
  EXPECT_TRUE(list.Take(List({Agreed(1, "ppo.epochs=2", 5)})));
  ASSERT_OK(list.Add(Wanted("ppo.epochs=3")).status());
  next.Restore(list.All());
  const auto ticket = next.Add(Wanted("ppo.epochs=4"));
  ASSERT_OK(ticket.status());
  EXPECT_EQ(next.Find(*ticket)->number(), 3);
}

TEST(ChangeListTest, WhatCannotBeIsRefused) {
  ChangeList list;
  EXPECT_THAT(list.Add(Wanted("env.num_envs=8")).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("env.num_envs cannot change in flight")));
  EXPECT_THAT(
      list.Add(Wanted("custom.options.a=" + std::string(2000, 'x'))).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bytes")));
  for (size_t i = 0; i < kMaxChanges; ++i) {
    ASSERT_OK(list.Add(Wanted("ppo.epochs=2")).status());
  }
  EXPECT_THAT(list.Add(Wanted("ppo.epochs=2")).status(),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(ChangeListTest, ARankCannotHaveAgreedOnAnything) {
  EXPECT_OK(CheckAgreed(List({Agreed(1, "ppo.epochs=2", 5)})));
  EXPECT_THAT(CheckAgreed(List({Agreed(2, "ppo.epochs=2", 5)})),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(CheckAgreed(List({Agreed(1, "ppo.epochs=2", 0)})),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(CheckAgreed(List({Agreed(1, std::string(5000, 'x'), 1)})),
              StatusIs(absl::StatusCode::kInvalidArgument));
  ChangeList::Changes many;
  for (size_t i = 0; i <= kMaxChanges; ++i) {
    *many.Add() = Agreed(static_cast<int64_t>(i) + 1, "ppo.epochs=2", 1);
  }
  EXPECT_THAT(CheckAgreed(many), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace flotilla
