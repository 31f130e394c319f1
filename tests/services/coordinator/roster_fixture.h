#ifndef FLOTILLA_TESTS_SERVICES_COORDINATOR_ROSTER_FIXTURE_H_
#define FLOTILLA_TESTS_SERVICES_COORDINATOR_ROSTER_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/coordinator/roster.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/status_matchers.h"

// What all tests of services/coordinator/roster.h begin with.

namespace flotilla {

// Everybody's, where it does not matter.
inline constexpr char kKey[] = "key";

inline v1::Member Learner(int local, uint64_t incarnation = 1, int node = 0) {
  v1::Member member;
  member.set_id(absl::StrCat("learner/", node, "/", local));
  member.set_incarnation(incarnation);
  member.set_role(v1::LEARNER);
  member.set_host(absl::StrCat("host", node));
  member.set_pid(1000 + local);
  member.set_node_rank(node);
  member.set_local_rank(local);
  member.set_version("1.0");
  member.set_config_digest("abc");
  return member;
}

inline v1::Member EnvServer(const std::string& host, int pid) {
  v1::Member member;
  member.set_id(absl::StrCat("env/", host, "/", pid));
  member.set_incarnation(1);
  member.set_role(v1::ENV_SERVER);
  member.set_host(host);
  member.set_pid(pid);
  member.set_address(absl::StrCat(host, ":5000"));
  member.set_num_envs(8);
  return member;
}

class RosterTest : public ::testing::Test {
 protected:
  // A roster for a fixed world of `learners`, or min to max.
  void Make(int min, int max) {
    RosterOptions options;
    options.epoch = "epoch-1";
    options.min_learners = min;
    options.max_learners = max;
    Make(options);
  }
  void Make(int learners) { Make(learners, learners); }
  void Make(const RosterOptions& options) {
    options_ = options;
    roster_ = std::make_unique<Roster>(options, clock_.Now());
  }

  // What a coordinator that takes over from this one makes of its state.
  void Restart(bool with_journal = true) {
    const RosterState state = roster_->State();
    options_.epoch += "+";
    Make(options_);
    if (with_journal) roster_->Restore(state, clock_.Now());
  }

  absl::Status Register(const v1::Member& member) {
    return roster_->Register(member, kKey, clock_.Now()).status();
  }

  static v1::JoinGenerationRequest Request(
      const v1::Member& member, uint64_t after = 0,
      std::optional<uint64_t> update = std::nullopt) {
    v1::JoinGenerationRequest request;
    request.set_member_id(member.id());
    request.set_incarnation(member.incarnation());
    request.set_after_generation(after);
    request.set_has_state(update.has_value());
    request.set_last_committed_update(update.value_or(0));
    return request;
  }

  absl::StatusOr<uint64_t> Join(const v1::Member& member, uint64_t after = 0,
                                std::optional<uint64_t> update = std::nullopt) {
    return roster_->Join(Request(member, after, update), kKey, clock_.Now());
  }

  // The place of a member that has joined; nullopt while it waits.
  std::optional<v1::Assignment> Place(
      const v1::Member& member, uint64_t after = 0,
      std::optional<uint64_t> update = std::nullopt) {
    auto result = roster_->JoinResult(Request(member, after, update));
    EXPECT_OK(result);
    return result.ok() ? *result : std::nullopt;
  }

  absl::StatusOr<v1::Command> Beat(const v1::Member& member,
                                   uint64_t generation = 0,
                                   v1::Phase phase = v1::LEARNING) {
    v1::Heartbeat beat;
    beat.set_member_id(member.id());
    beat.set_incarnation(member.incarnation());
    beat.set_generation(generation);
    beat.set_phase(phase);
    return roster_->Beat(beat, kKey, clock_.Now());
  }

  // Registers and joins them all.
  void Form(const std::vector<v1::Member>& members) {
    for (const v1::Member& member : members) ASSERT_OK(Register(member));
    for (const v1::Member& member : members) ASSERT_OK(Join(member));
    for (const v1::Member& member : members) ASSERT_TRUE(Place(member));
  }

  absl::Status Fail(const v1::Member& member, uint64_t generation,
                    const std::string& reason = "it broke") {
    v1::ReportFailureRequest request;
    request.set_member_id(member.id());
    request.set_generation(generation);
    request.set_reason(reason);
    return roster_->ReportFailure(request, kKey, clock_.Now());
  }

  absl::Status Leave(const v1::Member& member) {
    v1::LeaveRequest request;
    request.set_member_id(member.id());
    request.set_incarnation(member.incarnation());
    return roster_->Leave(request, kKey, clock_.Now());
  }

  // Time passes, with these members alive and well.
  void Pass(absl::Duration time, const std::vector<v1::Member>& alive,
            uint64_t generation = 0) {
    const absl::Time end = clock_.Now() + time;
    while (clock_.Now() < end) {
      clock_.Advance(std::min(end - clock_.Now(), absl::Seconds(1)));
      for (const v1::Member& member : alive) {
        ASSERT_OK(Beat(member, generation));
      }
      roster_->Tick(clock_.Now());
    }
  }

  std::string StateOf(const v1::Member& member) {
    const v1::Status status = roster_->GetStatus(clock_.Now());
    for (const v1::LearnerStatus& learner : status.learner()) {
      if (learner.id() == member.id()) return learner.state();
    }
    return "unknown";
  }

  v1::GenerationState state() { return roster_->Command().state(); }
  uint64_t generation() { return roster_->Command().generation(); }

  FakeClock clock_;
  RosterOptions options_;
  std::unique_ptr<Roster> roster_;
};

inline std::vector<std::string> Ids(const v1::Assignment& assignment) {
  std::vector<std::string> ids;
  for (const v1::Member& m : assignment.learner()) ids.push_back(m.id());
  return ids;
}

inline v1::ReportEvaluationRequest Verdict(int64_t round, bool stop) {
  v1::ReportEvaluationRequest request;
  request.set_member_id("learner/0/0");
  request.mutable_evaluation()->set_round(round);
  request.mutable_evaluation()->set_stop(stop);
  return request;
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_SERVICES_COORDINATOR_ROSTER_FIXTURE_H_
