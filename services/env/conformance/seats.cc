#include "services/env/conformance/seats.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "flotilla/v1/env.grpc.pb.h"
#include "services/env/conformance/refusals.h"
#include "services/rpc/grpc_status.h"

namespace flotilla {
namespace {

using google::protobuf::util::MessageDifferencer;

std::string Words(const absl::Status& status) {
  return absl::StrCat("GetSpec ended with ",
                      absl::StatusCodeToString(status.code()), ": ",
                      std::string(status.message()));
}

// `player` has stepped all its groups `steps` times.
void CheckSession(Exam* exam, const Player& player, int64_t steps) {
  Findings& findings = *exam->findings;
  const auto response = GetSpec(*exam, v1::GetSpecRequest());
  if (!response.ok()) {
    return findings.Fail(Sentence::kSession,
                         Words(response.status()) + ", while a learner plays");
  }
  const v1::Hello& hello = player.hello();
  const auto& sessions = response->session();
  const auto found = std::find_if(
      sessions.begin(), sessions.end(), [&](const v1::PlaySession& session) {
        return session.learner_id() == hello.learner_id();
      });
  if (found == sessions.end()) {
    return findings.Fail(Sentence::kSession,
                         absl::StrCat("GetSpec has ", sessions.size(),
                                      " sessions, want one of the learner \"",
                                      hello.learner_id(), "\", who plays"));
  }
  const auto check = [&](const char* field, const auto& got, const auto& want) {
    if (got == want) return findings.Ok(Sentence::kSession);
    findings.Fail(Sentence::kSession, absl::StrCat("session.", field, " is ",
                                                   got, ", want ", want));
  };
  check("incarnation", found->incarnation(), hello.incarnation());
  check("env_id", found->env_id(), hello.env_id());
  check("num_envs", found->num_envs(), hello.num_envs());
  check("steps", found->steps(), steps * hello.num_envs());
  if (!MessageDifferencer::Equals(response->spec(), player.spec())) {
    findings.Fail(
        Sentence::kSession,
        "GetSpec without an env_id has another specification than the "
        "welcome of the learner who plays");
  }
}

void CheckSecondPlayer(Exam* exam, Player* first) {
  v1::Hello hello = exam->hello;
  hello.set_learner_id(hello.learner_id() + "-second");
  Probe second(exam->channel);
  second.Send(Request(hello), exam->timeout);
  ExpectRefusal(exam, &second, Sentence::kSecondPlayer,
                "another learner's hello", absl::StatusCode::kResourceExhausted,
                first->hello().learner_id());
  if (!first->Play(1)) {
    exam->findings->Fail(
        Sentence::kSecondPlayer,
        "after another learner's hello, the one that plays got "
        "no step, want it to play on");
  }
}

void CheckTakeover(Exam* exam, Player* older) {
  v1::Hello hello = older->hello();
  hello.set_incarnation(hello.incarnation() + 1);
  const std::string what = absl::StrCat("incarnation ", hello.incarnation(),
                                        " of the learner that "
                                        "plays as ",
                                        older->hello().incarnation());
  Player newer(exam, hello);
  if (!newer.Open() || !newer.Start() || !newer.Play(1)) {
    return exam->findings->Fail(
        Sentence::kTakeover,
        absl::StrCat("after the hello of ", what,
                     " it could not play, want it to take over"));
  }
  ExpectRefusal(exam, &older->probe(), Sentence::kTakeover,
                absl::StrCat("the hello of ", what, ", to the older stream:"),
                absl::StatusCode::kAborted);
  newer.Finish();
}

// In the middle of a step, as a learner that dies.
void CheckCancel(Exam* exam) {
  Player dying(exam, exam->hello);
  if (!dying.Open() || !dying.Start() || !dying.Send(dying.Draw(0))) return;
  dying.probe().Cancel();
  v1::Hello hello = exam->hello;
  hello.set_learner_id(hello.learner_id() + "-next");
  Player next(exam, hello);
  // Open waits while the seat is taken, but not for ever.
  if (next.Open() && next.Start() && next.Play(1)) {
    exam->findings->Ok(Sentence::kCancel);
    next.Finish();
    return;
  }
  exam->findings->Fail(
      Sentence::kCancel,
      absl::StrCat("after a cancelled stream the next learner could not play "
                   "within ",
                   absl::FormatDuration(exam->timeout)));
}

}  // namespace

absl::StatusOr<v1::GetSpecResponse> GetSpec(const Exam& exam,
                                            const v1::GetSpecRequest& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoMilliseconds(exam.timeout));
  v1::GetSpecResponse response;
  const grpc::Status status = v1::EnvService::NewStub(exam.channel)
                                  ->GetSpec(&context, request, &response);
  if (!status.ok()) return FromGrpc(status);
  return response;
}

void CheckGetSpec(Exam* exam, const v1::EnvSpec& spec) {
  Findings& findings = *exam->findings;
  v1::GetSpecRequest request;
  request.set_env_id(exam->hello.env_id());
  *request.mutable_options() = exam->hello.options();
  const auto response = GetSpec(*exam, request);
  if (!response.ok()) {
    return findings.Fail(Sentence::kGetSpec, Words(response.status()));
  }
  if (MessageDifferencer::Equals(response->spec(), spec)) {
    findings.Ok(Sentence::kGetSpec);
  } else {
    findings.Fail(Sentence::kGetSpec,
                  absl::StrCat("GetSpec's specification is {",
                               response->spec().ShortDebugString(),
                               "}, want that of the welcome, {",
                               spec.ShortDebugString(), "}"));
  }
  const auto& ids = response->env_id();
  if (std::find(ids.begin(), ids.end(), exam->hello.env_id()) != ids.end()) {
    findings.Ok(Sentence::kListsIds);
  } else {
    findings.Warn(Sentence::kListsIds,
                  absl::StrCat("GetSpec lists ", ids.size(), " ids, and not \"",
                               exam->hello.env_id(), "\", which it makes"));
  }
}

void CheckSeats(Exam* exam) {
  if (exam->gone) return;
  {
    Player player(exam, exam->hello);
    if (!player.Open() || !player.Start() || !player.Play(2)) return;
    CheckSession(exam, player, 2);
    CheckSecondPlayer(exam, &player);
    CheckTakeover(exam, &player);
  }
  if (exam->gone) return;
  {
    // With a step on its way.
    Player player(exam, exam->hello);
    if (!player.Open() || !player.Start() || !player.Send(player.Draw(0))) {
      return;
    }
    player.Finish();
  }
  if (!exam->gone) CheckCancel(exam);
}

}  // namespace flotilla
