#include "services/base/run_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "services/base/config.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

v1::Change* Add(const std::string& text, int64_t update, v1::Changes* changes) {
  v1::Change* change = changes->add_change();
  change->set_number(changes->change_size());
  change->add_override(text);
  change->set_update(update);
  return change;
}

v1::RunConfig Began() {
  v1::RunConfig config;
  config.mutable_ppo();
  return Resolved(config);
}

TEST(RunChangesTest, WhatHoldsFollowsTheUpdates) {
  v1::Changes changes;
  Add("optimizer.learning_rate=0.1", 5, &changes);
  Add("ppo.epochs=9", 7, &changes)->set_refused("because");
  Add("optimizer.learning_rate=0.2", 8, &changes);
  const auto rate = [&](int64_t update) {
    return ConfigAt(Began(), changes, update).optimizer().learning_rate();
  };
  EXPECT_EQ(rate(4), 2.5e-4);
  EXPECT_EQ(rate(5), 0.1);
  EXPECT_EQ(rate(8), 0.2);
  EXPECT_EQ(ConfigAt(Began(), changes, 100).ppo().epochs(), 4);
}

// Someone changes their mind while a resumed run has yet to come to a change.
TEST(RunChangesTest, TheHighestNumberHolds) {
  v1::Changes changes;
  Add("optimizer.learning_rate=0.1", 90, &changes);
  Add("optimizer.learning_rate=0.2", 85, &changes);
  EXPECT_EQ(ConfigAt(Began(), changes, 95).optimizer().learning_rate(), 0.2);
}

TEST(RunChangesTest, FieldsThatAreGivenOtherwiseAreLeftOut) {
  v1::Changes changes;
  Add("optimizer.learning_rate=0.1", 5, &changes)->add_override("ppo.epochs=2");
  Add("ppo.epochs=3", 6, &changes);
  Add("ppo.entropy_cost=0", 7, &changes);
  const v1::Changes kept = WithoutFields(changes, {"ppo.epochs"});
  ASSERT_EQ(kept.change_size(), 2);
  EXPECT_THAT(kept.change(0).override(),
              ElementsAre("optimizer.learning_rate=0.1"));
  EXPECT_THAT(kept.change(1).override(), ElementsAre("ppo.entropy_cost=0"));
  EXPECT_EQ(kept.change(1).number(), 2);
}

TEST(RunChangesTest, AFileIsReadBackOrNamed) {
  const std::string path =
      absl::StrCat(testing::TempDir(), "/changes.textproto");
  v1::Changes changes;
  Add("custom.options.what=\"a b\"", 5, &changes);
  ASSERT_OK(WriteChanges(path, changes));
  const auto read = ReadChanges(path);
  ASSERT_OK(read.status());
  EXPECT_EQ(read->SerializeAsString(), changes.SerializeAsString());
  std::ofstream(path) << "change { number: 2 update: 1 }";
  EXPECT_THAT(ReadChanges(path).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path)));
  EXPECT_OK(ReadChanges(path + ".absent").status());
}

}  // namespace
}  // namespace flotilla
