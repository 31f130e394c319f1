// services/coordinator/roster.h: any requests of any members in any order, on a
// clock that only moves forward.

#include "services/coordinator/roster.h"

#include <glog/logging.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/fuzz/input.h"
#include "tests/testing/fake_clock.h"

namespace flotilla {
namespace {

const std::vector<std::string>& Names() {
  static const auto& names = *new std::vector<std::string>{"learner/0/0",
                                                           "learner/0/1",
                                                           "learner/1/0",
                                                           "learner/1/1",
                                                           "env/0",
                                                           "env/1",
                                                           "",
                                                           "run",
                                                           "h0",
                                                           "h1"};
  return names;
}

RosterOptions MakeOptions(Input* in) {
  RosterOptions options;
  options.epoch = "epoch";
  options.min_learners = 1 + in->Below(3);
  options.max_learners = options.min_learners + in->Below(3);
  return options;
}

class World {
 public:
  explicit World(Input* in)
      : in_(in),
        options_(MakeOptions(in)),
        roster_(std::make_unique<Roster>(options_, clock_.Now())) {}

  void Run() {
    while (!in_->empty()) {
      Act();
      Check();
    }
  }

 private:
  // A request by one of the usual members, which may then be bent.
  template <typename Request>
  Request Make() {
    Request request;
    if constexpr (requires { request.set_member_id(""); }) {
      request.set_member_id(Names()[in_->Below(6)]);
    }
    if constexpr (requires { request.set_incarnation(1); }) {
      request.set_incarnation(1);
    }
    if constexpr (requires { request.set_generation(1); }) {
      request.set_generation(roster_->Command().generation());
    }
    in_->Fill(Names(), &request);
    return request;
  }

  // Most show the secret that they have always shown.
  std::string Key() {
    const int which = in_->Below(16);
    return which < 14 ? "key" : which == 14 ? "other" : "";
  }

  v1::Member MakeMember() {
    v1::Member member;
    const int who = in_->Below(6);
    member.set_id(Names()[who]);
    member.set_incarnation(1);
    member.set_role(who < 4 ? v1::LEARNER : v1::ENV_SERVER);
    in_->Fill(Names(), &member);
    return member;
  }

  void Join() {
    const auto request = Make<v1::JoinGenerationRequest>();
    const auto ticket = roster_->Join(request, Key(), clock_.Now());
    if (!ticket.ok()) return;
    CheckPlace(request);
    joins_[request.member_id()] = request;
    if (in_->Below(4) == 3) {
      roster_->GiveUpJoin(request.member_id(), *ticket,
                          clock_.Now() + absl::Seconds(in_->Below(3)),
                          clock_.Now());
    }
  }

  // Ranks are distinct and the requester's own.
  void CheckPlace(const v1::JoinGenerationRequest& request) {
    const auto place = roster_->JoinResult(request);
    if (!place.ok() || !place->has_value()) return;
    const v1::Assignment& assignment = **place;
    CHECK_GT(assignment.generation(), request.after_generation());
    CHECK_GE(assignment.rank(), 0);
    CHECK_LT(assignment.rank(), assignment.world_size());
    CHECK_EQ(assignment.learner(assignment.rank()).id(), request.member_id());
    CHECK_GE(assignment.source_rank(), 0);
    CHECK_LT(assignment.source_rank(), assignment.world_size());
    CHECK(!assignment.stopping() || roster_->Command().stop());
  }

  // Another coordinator takes over.
  void Restart() {
    const RosterState state = roster_->State();
    roster_ = std::make_unique<Roster>(options_, clock_.Now());
    if (in_->Below(2) == 0) {
      roster_->Restore(state, clock_.Now());
    } else {  // without a journal it has to hear of everything
      before_ = v1::Command();
    }
  }

  // Many workers that nobody has heard of before.
  void Flood() {
    auto heartbeat = Make<v1::Heartbeat>();
    for (int i = 0; i < 1000; ++i) {
      heartbeat.add_env_worker()->set_id(absl::StrCat("env/", flood_++));
    }
    IgnoreResult(roster_->Beat(heartbeat, Key(), clock_.Now()));
  }

  template <typename T>
  static void IgnoreResult(const T&) {}

  void Act() {
    const absl::Time now = clock_.Now();
    switch (in_->Below(18)) {
      case 0:
      case 1:
        return IgnoreResult(roster_->Register(MakeMember(), Key(), now));
      case 2:
      case 3:
        return Join();
      case 4:
        clock_.Advance(absl::Milliseconds(100) * in_->Byte());
        return roster_->Tick(clock_.Now());
      case 5:
        return roster_->Tick(clock_.Advance(absl::Seconds(31)));
      case 6:
        return IgnoreResult(roster_->Beat(Make<v1::Heartbeat>(), Key(), now));
      case 7:
        return IgnoreResult(
            roster_->Leave(Make<v1::LeaveRequest>(), Key(), now));
      case 8:
        return IgnoreResult(roster_->ReportFailure(
            Make<v1::ReportFailureRequest>(), Key(), now));
      case 9:
        return IgnoreResult(roster_->ReportEvaluation(
            Make<v1::ReportEvaluationRequest>(), Key()));
      case 10:
        return IgnoreResult(roster_->ReportCollected(
            Make<v1::ReportCollectedRequest>(), Key()));
      case 11:
        return IgnoreResult(roster_->LeaseEnvServers(
            Make<v1::LeaseEnvServersRequest>(), Key()));
      case 12:
        return IgnoreResult(roster_->ReleaseEnvServers(
            Make<v1::ReleaseEnvServersRequest>(), Key()));
      case 13:
        return roster_->SessionBroken(Names()[in_->Below(6)], in_->Integer());
      case 14:
        return in_->Below(8) == 7 ? IgnoreResult(roster_->Stop(in_->Bytes()))
                                  : Flood();
      case 15:
        return in_->Below(8) == 7 ? IgnoreResult(roster_->CloseRun(
                                        Make<v1::CloseRunRequest>(), Key()))
                                  : IgnoreResult(roster_->WhyNotFormed());
      case 16:
        return IgnoreResult(roster_->CheckGeneration(in_->Integer()));
      case 17:
        return Restart();
    }
  }

  void Check() {
    const v1::Command command = roster_->Command();
    CHECK_GE(command.generation(), before_.generation());
    CHECK_GE(command.fenced_generation(), before_.fenced_generation());
    CHECK_LE(command.fenced_generation(), command.generation());
    CHECK(command.stop() || !before_.stop());
    CHECK(command.closed() || !before_.closed());
    if (command.state() == v1::ACTIVE) {
      CHECK_LT(command.fenced_generation(), command.generation());
    }
    before_ = command;
    CheckWorld(roster_->State().world);
    CheckStatus(roster_->GetStatus(clock_.Now()));
    for (const auto& [id, request] : joins_) CheckPlace(request);
  }

  void CheckWorld(const v1::Assignment& world) {
    CHECK_EQ(world.world_size(), world.learner_size());
    std::set<std::string> ids;
    for (const v1::Member& learner : world.learner()) {
      CHECK(ids.insert(learner.id()).second) << learner.id() << " twice";
      CHECK_EQ(learner.role(), v1::LEARNER) << learner.id();
    }
  }

  void CheckStatus(const v1::Status& status) {
    std::set<int> ranks;
    for (const v1::LearnerStatus& learner : status.learner()) {
      CHECK_LT(learner.rank(), status.world_size()) << learner.id();
      CHECK(learner.rank() < 0 || ranks.insert(learner.rank()).second)
          << "rank " << learner.rank() << " twice";
      CHECK_LE(learner.env_worker_size(), 10'000) << learner.id();
    }
    CHECK_GE(status.learner_restarts(), 0);
    CHECK_GE(status.env_worker_restarts(), 0);
  }

  Input* const in_;
  FakeClock clock_;
  const RosterOptions options_;
  std::unique_ptr<Roster> roster_;
  v1::Command before_;
  std::map<std::string, v1::JoinGenerationRequest> joins_;  // the last of each
  int flood_ = 0;
};

}  // namespace
}  // namespace flotilla

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  flotilla::Input in(data, size);
  flotilla::World(&in).Run();
  return 0;
}
