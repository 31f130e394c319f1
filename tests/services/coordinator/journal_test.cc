#include "services/coordinator/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "services/base/atomic_file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(JournalTest, ReadsBackWhatWasWritten) {
  RosterState state;
  state.run.set_run_id("run\n---\n\"1\"");
  state.world.set_generation(7);
  state.world.set_world_size(1);
  state.world.add_learner()->set_id("learner/0/0");
  state.world.mutable_learner(0)->set_role(v1::LEARNER);
  state.command.set_generation(7);
  state.command.set_fenced_generation(6);
  state.command.set_fence_reason("rank 1 died\n---\n");
  state.command.mutable_evaluation()->set_round(3);
  (*state.keys.mutable_sha256())["learner/0/0"] = "abc";
  (*state.keys.mutable_restarts())["learner/0/0"] = 2;
  TempDir folder;
  ASSERT_OK(WriteFileAtomically(folder / "journal", FormatJournal(state)));
  ASSERT_OK_AND_ASSIGN(const std::optional<RosterState> back,
                       ReadJournal(folder / "journal"));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->run.run_id(), state.run.run_id());
  EXPECT_EQ(back->world.generation(), 7u);
  EXPECT_EQ(back->world.learner(0).id(), "learner/0/0");
  EXPECT_EQ(back->command.fence_reason(), state.command.fence_reason());
  EXPECT_EQ(back->command.evaluation().round(), 3);
  EXPECT_EQ(back->keys.sha256().at("learner/0/0"), "abc");
  EXPECT_EQ(back->keys.restarts().at("learner/0/0"), 2);
}

TEST(JournalTest, PassingEventsAreNotKept) {
  RosterState state;
  state.command.set_preempt_update(5);
  EXPECT_THAT(FormatJournal(state), Not(HasSubstr("preempt")));
}

TEST(JournalTest, WhatNoRosterWritesIsRefused) {
  TempDir folder;
  for (const char* damaged : {
           "\n---\nworld_size: 4\n---\n",
           "\n---\nworld_size: 1 learner { id: \"a\" role: ENV_SERVER }\n---\n",
           "\n---\nworld_size: 2 learner { id: \"a\" role: LEARNER } "
           "learner { id: \"a\" role: LEARNER }\n---\n",
           "\n---\ngeneration: 3\n---\ngeneration: 2\n",
           "\n---\n\n---\ngeneration: 2 fenced_generation: 3\n",
           "\n---\ngeneration: 2\n---\ngeneration: 3 state: ACTIVE\n",
       }) {
    WriteFile(folder / "journal", absl::StrCat(damaged, "---\n"));
    EXPECT_THAT(ReadJournal(folder / "journal"),
                StatusIs(StatusCode::kDataLoss, HasSubstr("Delete it")))
        << damaged;
  }
}

TEST(JournalTest, NoFileIsNoJournal) {
  TempDir folder;
  ASSERT_OK_AND_ASSIGN(const std::optional<RosterState> none,
                       ReadJournal(folder / "none"));
  EXPECT_FALSE(none.has_value());
}

TEST(JournalTest, DamagedFileIsRefusedWithTheRemedy) {
  TempDir folder;
  for (const char* damaged : {"", "garbage", "a\n---\nb\n---\nc\n"}) {
    WriteFile(folder / "journal", damaged);
    EXPECT_THAT(ReadJournal(folder / "journal"),
                StatusIs(StatusCode::kDataLoss, HasSubstr("Delete it")))
        << damaged;
  }
  EXPECT_THAT(ReadJournal(folder.path()), Not(IsOk()));
}

}  // namespace
}  // namespace flotilla
