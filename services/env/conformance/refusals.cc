#include "services/env/conformance/refusals.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/base/steady_now.h"
#include "services/env/conformance/action_draw.h"

namespace flotilla {
namespace {

using absl::StatusCode;

// Sends `first`, and whatever follows it, on a stream of its own; again while
// another stream still has the seat.
void RefuseMessages(Exam* exam, Sentence sentence, const std::string& what,
                    const std::vector<v1::PlayRequest>& messages,
                    StatusCode code, const std::string& name = "") {
  if (exam->gone) return;
  const absl::Time deadline = SteadyNow() + exam->timeout;
  for (;;) {
    Probe probe(exam->channel);
    probe.Send(messages[0], exam->timeout);
    if (messages.size() > 1) {
      // Not before the welcome; what comes instead is told below.
      probe.Receive(exam->timeout);
      for (size_t i = 1; i < messages.size(); ++i) {
        probe.Send(messages[i], exam->timeout);
      }
    }
    const Probe::Event event = probe.Receive(exam->timeout);
    const bool taken = event == Probe::Event::kEnded &&
                       probe.status().code() != code &&
                       (absl::IsResourceExhausted(probe.status()) ||
                        absl::IsAborted(probe.status()));
    if (taken && SteadyNow() < deadline) {
      absl::SleepFor(kSeatPause);
      continue;
    }
    if (event == Probe::Event::kSilence) exam->NoteSilence();
    Findings& findings = *exam->findings;
    if (event != Probe::Event::kEnded || probe.status().code() != code) {
      findings.Fail(sentence,
                    absl::StrCat("after ", what, " ", probe.Describe(event),
                                 ", want ", absl::StatusCodeToString(code)));
    } else if (!name.empty() &&
               !absl::StrContains(probe.status().message(), name)) {
      findings.Warn(sentence,
                    absl::StrCat("after ", what, " ", probe.Describe(event),
                                 ", which does not name ", name));
    } else {
      findings.Ok(sentence);
    }
    return;
  }
}

void RefuseHello(Exam* exam, Sentence sentence, const std::string& what,
                 StatusCode code, const std::string& name,
                 const std::function<void(v1::Hello*)>& spoil) {
  v1::Hello hello = exam->hello;
  spoil(&hello);
  RefuseMessages(exam, sentence, what, {Request(hello)}, code, name);
}

void CheckOrder(Exam* exam) {
  constexpr Sentence kOrder = Sentence::kMessageOrder;
  constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
  const v1::PlayRequest hello = Request(exam->hello);
  RefuseMessages(exam, kOrder, "a start instead of a hello",
                 {Request(v1::Start())}, kInvalid);
  RefuseMessages(exam, kOrder, "actions instead of a hello",
                 {Request(v1::ActionBatch())}, kInvalid);
  RefuseMessages(exam, kOrder, "a request with nothing in it",
                 {v1::PlayRequest()}, kInvalid);
  RefuseMessages(exam, kOrder, "a second hello instead of a start",
                 {hello, hello}, kInvalid);
  RefuseMessages(exam, kOrder, "actions instead of a start",
                 {hello, Request(v1::ActionBatch())}, kInvalid);
  Player player(exam, exam->hello);
  if (exam->gone || !player.Open() || !player.Start()) return;
  player.probe().Send(Request(v1::Start()), exam->timeout);
  ExpectRefusal(exam, &player.probe(), kOrder, "a second start", kInvalid);
}

// Calls `spoil` with actions that fit, sends what it leaves and expects a
// refusal.
void RefuseActions(
    Exam* exam, Sentence sentence, const std::string& what,
    const std::function<void(const Player&, v1::ActionBatch*)>& spoil,
    const std::string& name = "") {
  Player player(exam, exam->hello);
  if (exam->gone || !player.Open() || !player.Start()) return;
  // So that an earlier seq can be answered again.
  if (!player.Step({0})) return;
  v1::ActionBatch actions = player.Draw(0);
  spoil(player, &actions);
  player.probe().Send(Request(actions), exam->timeout);
  ExpectRefusal(exam, &player.probe(), sentence, what,
                StatusCode::kInvalidArgument, name);
}

void CheckActionSize(Exam* exam) {
  Player player(exam, exam->hello);
  if (exam->gone || !player.Open() || !player.Start()) return;
  v1::ActionBatch actions = player.Draw(0);
  const int leaf = actions.action_size() - 1;
  const std::string& path = player.spec().action(leaf).path();
  const size_t want = actions.action(leaf).size();
  actions.mutable_action(leaf)->pop_back();
  player.probe().Send(Request(actions), exam->timeout);
  const std::string what = absl::StrCat("an action leaf \"", path, "\" of ",
                                        want - 1, " bytes instead of ", want);
  if (!ExpectRefusal(exam, &player.probe(), Sentence::kActionSize, what,
                     StatusCode::kInvalidArgument,
                     path.empty() ? "action" : path)) {
    return;
  }
  for (const size_t number : {want - 1, want}) {
    if (absl::StrContains(player.probe().status().message(),
                          absl::StrCat(number))) {
      continue;
    }
    exam->findings->Warn(
        Sentence::kActionSize,
        absl::StrCat("after ", what, " ",
                     player.probe().Describe(Probe::Event::kEnded),
                     ", which does not say ", number));
  }
}

void CheckActionRange(Exam* exam) {
  Findings& findings = *exam->findings;
  Player player(exam, exam->hello);
  if (exam->gone || !player.Open() || !player.Start()) return;
  const auto bad = OutOfRange(player.spec());
  if (!bad) {
    return findings.Skip(Sentence::kActionRange,
                         "every action that fits is in range");
  }
  v1::ActionBatch actions = player.Draw(0);
  int row = 0;
  while (row < player.layout().rows && !player.IsActive(0, row)) ++row;
  if (row == player.layout().rows) {
    return findings.Skip(Sentence::kActionRange, "nobody was to act at first");
  }
  actions.mutable_action(bad->leaf)->replace(
      static_cast<size_t>(row) * bad->bytes.size(), bad->bytes.size(),
      bad->bytes);
  player.probe().Send(Request(actions), exam->timeout);
  const Probe::Event event = player.probe().Receive(exam->timeout);
  if (event == Probe::Event::kEnded &&
      absl::IsInvalidArgument(player.probe().status())) {
    return findings.Ok(Sentence::kActionRange);
  }
  if (event == Probe::Event::kReply) {
    for (const v1::RowError& error : player.probe().reply().step().error()) {
      if (error.row() == row) return findings.Ok(Sentence::kActionRange);
    }
  }
  findings.Fail(Sentence::kActionRange,
                absl::StrCat("after ", bad->words, " in row ", row, " ",
                             player.probe().Describe(event),
                             ", want INVALID_ARGUMENT or an error of the row"));
}

}  // namespace

bool ExpectRefusal(Exam* exam, Probe* probe, Sentence sentence,
                   const std::string& what, StatusCode code,
                   const std::string& name) {
  const Probe::Event event = probe->Receive(exam->timeout);
  const std::string came =
      absl::StrCat("after ", what, " ", probe->Describe(event));
  if (event != Probe::Event::kEnded || probe->status().code() != code) {
    exam->findings->Fail(
        sentence,
        absl::StrCat(came, ", want ", absl::StatusCodeToString(code)));
    return false;
  }
  if (!name.empty() && !absl::StrContains(probe->status().message(), name)) {
    exam->findings->Fail(
        sentence, absl::StrCat(came, ", want it to name \"", name, "\""));
    return false;
  }
  exam->findings->Ok(sentence);
  return true;
}

void CheckHelloRefusals(Exam* exam, const v1::EnvSpec& spec) {
  for (const uint32_t version : {0u, 999u}) {
    RefuseHello(exam, Sentence::kProtocolVersion,
                absl::StrCat("hello.protocol_version ", version),
                StatusCode::kFailedPrecondition, "",
                [&](v1::Hello* h) { h->set_protocol_version(version); });
  }
  RefuseHello(exam, Sentence::kUnknownId,
              "hello.env_id \"no-such-environment-v0\"", StatusCode::kNotFound,
              "", [](v1::Hello* h) {
                h->set_env_id("no-such-environment-v0");
                h->clear_options();
              });
  for (const int num_envs : {0, -4}) {
    RefuseHello(exam, Sentence::kNumEnvs,
                absl::StrCat("hello.num_envs ", num_envs),
                StatusCode::kInvalidArgument, "num_envs",
                [&](v1::Hello* h) { h->set_num_envs(num_envs); });
  }
  for (const int num_groups :
       {0, exam->hello.num_envs() - 1, exam->hello.num_envs() + 1}) {
    if (num_groups > 0 && exam->hello.num_envs() % num_groups == 0) continue;
    RefuseHello(exam, Sentence::kNumGroups,
                absl::StrCat("hello.num_groups ", num_groups, " of ",
                             exam->hello.num_envs(), " environments"),
                StatusCode::kInvalidArgument, "num_groups",
                [&](v1::Hello* h) { h->set_num_groups(num_groups); });
  }
  if (spec.agents() > 1) {
    const int num_envs = spec.agents() + 1;
    RefuseHello(exam, Sentence::kAgents,
                absl::StrCat("hello.num_envs ", num_envs, " in one group, of ",
                             spec.agents(), " agents an environment,"),
                StatusCode::kInvalidArgument, "agents", [&](v1::Hello* h) {
                  h->set_num_envs(num_envs);
                  h->set_num_groups(1);
                });
  }
  if (spec.option().empty()) {
    exam->findings->Skip(Sentence::kOptionUnknown,
                         "the environment declares no option");
  } else {
    RefuseHello(
        exam, Sentence::kOptionUnknown, "env.options.kwargs.no_such_option",
        StatusCode::kInvalidArgument, "no_such_option", [](v1::Hello* h) {
          auto* kwargs = h->mutable_options()->mutable_kwargs();
          (*kwargs)["no_such_option"] = "1";
        });
  }
  CheckOrder(exam);
}

void CheckActionRefusals(Exam* exam) {
  CheckActionSize(exam);
  RefuseActions(exam, Sentence::kActionLeaves, "one action leaf too many",
                [](const Player&, v1::ActionBatch* actions) {
                  actions->add_action(actions->action(0));
                });
  RefuseActions(
      exam, Sentence::kActionLeaves, "no action leaf",
      [](const Player&, v1::ActionBatch* actions) { actions->clear_action(); });
  for (const int64_t offset : {-1, 1}) {
    RefuseActions(exam, Sentence::kActionSeq,
                  absl::StrCat("actions for seq ", 1 + offset,
                               " when the last step was seq 1"),
                  [&](const Player&, v1::ActionBatch* actions) {
                    actions->set_seq(static_cast<uint64_t>(1 + offset));
                  });
  }
  for (const int group : {exam->hello.num_groups(), -1}) {
    RefuseActions(exam, Sentence::kActionGroup,
                  absl::StrCat("actions for group ", group, " of ",
                               exam->hello.num_groups()),
                  [&](const Player&, v1::ActionBatch* actions) {
                    actions->set_group(group);
                  });
  }
  CheckActionRange(exam);
}

}  // namespace flotilla
