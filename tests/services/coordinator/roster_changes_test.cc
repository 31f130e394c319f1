#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "services/coordinator/roster.h"
#include "tests/services/coordinator/roster_fixture.h"
#include "tests/testing/status_matchers.h"

// What is changed while the run goes on.

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class RosterChangesTest : public RosterTest {
 protected:
  absl::StatusOr<uint64_t> Set(const std::string& text) {
    v1::SetRequest request;
    request.add_override(text);
    return roster_->Set(request);
  }

  // A member of `generation` says that number 1 of all changes began there.
  absl::StatusOr<v1::Command> Agree(const v1::Member& member,
                                    uint64_t generation,
                                    const std::string& text, int64_t update,
                                    const std::string& refused = "") {
    v1::Heartbeat beat;
    beat.set_member_id(member.id());
    beat.set_incarnation(member.incarnation());
    beat.set_generation(generation);
    v1::Change* change = beat.add_change();
    change->set_number(1);
    change->add_override(text);
    change->set_update(update);
    change->set_refused(refused);
    return roster_->Beat(beat, kKey, clock_.Now());
  }
};

TEST_F(RosterChangesTest, EverybodyIsToldUntilTheRanksHaveAgreed) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK_AND_ASSIGN(const uint64_t ticket, Set("ppo.epochs=2"));
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_OK_AND_ASSIGN(const v1::Command command, Beat(Learner(rank), 1));
    ASSERT_EQ(command.change_size(), 1);
    EXPECT_EQ(command.change(0).override(0), "ppo.epochs=2");
    EXPECT_EQ(command.change(0).update(), 0);
  }
  ASSERT_OK(Agree(Learner(1), 1, "ppo.epochs=2", 31));
  EXPECT_EQ(roster_->FindChange(ticket)->update(), 31);
  EXPECT_EQ(roster_->Command().change(0).update(), 31);
  EXPECT_EQ(roster_->GetStatus(clock_.Now()).change(0).update(), 31);
}

// The update that a change holds from may be the run's last.
TEST_F(RosterChangesTest, WhatWasAgreedOnLastIsHeardBehindTheRunsEnd) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK_AND_ASSIGN(const uint64_t ticket, Set("total_env_steps=10"));
  v1::CloseRunRequest close;
  close.set_member_id(Learner(0).id());
  close.set_status("completed");
  ASSERT_OK(roster_->CloseRun(close, kKey));
  ASSERT_OK(Agree(Learner(1), 1, "total_env_steps=10", 31));
  EXPECT_EQ(roster_->FindChange(ticket)->update(), 31);
}

TEST_F(RosterChangesTest, OnlyWhoIsInTheGenerationSpeaksForIt) {
  Make(2);
  Form({Learner(0), Learner(1)});
  ASSERT_OK(Set("ppo.epochs=2"));
  ASSERT_OK(Agree(Learner(0), 0, "ppo.epochs=2", 31));
  ASSERT_OK(Register(EnvServer("host", 1)));
  ASSERT_OK(Agree(EnvServer("host", 1), 1, "ppo.epochs=2", 31));
  EXPECT_EQ(roster_->Command().change(0).update(), 0);
}

// As ranks say it that resume from a checkpoint which has it.
TEST_F(RosterChangesTest, AChangeThatIsRefusedInManyWordsIsSettled) {
  Make(1);
  Form({Learner(0)});
  const std::string text = "ppo.epochs=2";
  const std::string refused = text + ": " + std::string(3000, 'z');
  ASSERT_OK_AND_ASSIGN(const uint64_t ticket, Set(text));
  ASSERT_OK(Agree(Learner(0), 1, text, 31, refused));
  const std::optional<v1::Change> settled = roster_->FindChange(ticket);
  ASSERT_TRUE(settled.has_value());
  EXPECT_EQ(settled->update(), 31);
  EXPECT_THAT(settled->refused(), StartsWith("ppo.epochs=2: zzz"));
  EXPECT_LE(settled->refused().size(), 1024u);
  // It is told again and again, also to the next coordinator.
  for (int coordinator = 0; coordinator < 2; ++coordinator) {
    const uint64_t version = roster_->command_version();
    ASSERT_OK(Agree(Learner(0), 1, text, 31, refused));
    EXPECT_EQ(roster_->command_version(), version);
    Restart();
  }
}

TEST_F(RosterChangesTest, AnotherCoordinatorGoesOnWithThem) {
  Make(1);
  Form({Learner(0)});
  ASSERT_OK(Set("ppo.epochs=2"));
  ASSERT_OK(Agree(Learner(0), 1, "ppo.epochs=2", 31));
  ASSERT_OK(Set("ppo.epochs=3"));
  Restart();
  const v1::Command command = roster_->Command();
  ASSERT_EQ(command.change_size(), 2);
  EXPECT_EQ(command.change(0).update(), 31);
  EXPECT_EQ(command.change(1).override(0), "ppo.epochs=3");
}

TEST_F(RosterChangesTest, WithoutAJournalItHearsOfThemFromTheRanks) {
  Make(1);
  Form({Learner(0)});
  Restart(/*with_journal=*/false);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(Agree(Learner(0), 1, "ppo.epochs=2", 31));
  ASSERT_EQ(roster_->Command().change_size(), 1);
  EXPECT_EQ(roster_->Command().change(0).update(), 31);
}

TEST_F(RosterChangesTest, NothingIsChangedWhereNobodyTrains) {
  Make(1);
  EXPECT_THAT(Set("ppo.epochs=2"), StatusIs(StatusCode::kFailedPrecondition,
                                            HasSubstr("nobody trains yet")));
  Form({Learner(0)});
  EXPECT_THAT(Set("env.num_envs=2"), StatusIs(StatusCode::kInvalidArgument));
  roster_->Stop("user");
  EXPECT_THAT(Set("ppo.epochs=2"),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("user")));
}

}  // namespace
}  // namespace flotilla
