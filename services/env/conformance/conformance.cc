#include "services/env/conformance/conformance.h"

#include "absl/strings/str_cat.h"
#include "services/env/conformance/player.h"
#include "services/env/conformance/refusals.h"
#include "services/env/conformance/seats.h"
#include "services/env/conformance/streams.h"

namespace flotilla {
namespace {

// So few that it may be chance.
constexpr int kFewEnds = 4;

v1::Hello MakeHello(const ConformanceOptions& options) {
  v1::Hello hello;
  hello.set_protocol_version(1);
  hello.set_learner_id("flotilla-check-env");
  hello.set_incarnation(1);
  hello.set_env_id(options.env_id);
  *hello.mutable_options() = options.options;
  hello.set_num_envs(options.num_envs);
  hello.set_num_groups(2);
  hello.set_seed(1);
  return hello;
}

// What all streams together say of the ends of episodes.
void JudgeEnds(const Tally& tally, Findings* findings) {
  if (tally.ends == 0) return;
  // A few may end where the next begins.
  if (2 * tally.finals_like_start <= tally.ends) {
    findings->Ok(Sentence::kFinalObservation);
  } else if (tally.starts_differ) {
    findings->Fail(
        Sentence::kFinalObservation,
        absl::StrCat("at ", tally.finals_like_start, " of ", tally.ends,
                     " ends final_observation is what observation "
                     "is, the start of the next episode; want what "
                     "ended the old one"));
  } else {
    findings->Warn(
        Sentence::kFinalObservation,
        absl::StrCat("at ", tally.finals_like_start, " of ", tally.ends,
                     " ends final_observation is what the next "
                     "episode starts with: fine only if both look "
                     "the same"));
  }
  if (tally.terminated >= kFewEnds && tally.terminated_reported == 0) {
    findings->Warn(
        Sentence::kEpisodeEnd,
        absl::StrCat(tally.terminated,
                     " episodes terminated, none with an EpisodeEnd: "
                     "fine only if they were lives of one game"));
  }
}

// Says nothing, or nothing after the welcome.
void CheckSilence(Exam* exam, absl::Duration limit) {
  if (limit == absl::ZeroDuration() || exam->gone) return;
  Exam patient = *exam;
  patient.timeout = limit + exam->timeout;
  Probe silent(exam->channel);
  ExpectRefusal(&patient, &silent, Sentence::kHelloLimit, "no hello",
                absl::StatusCode::kDeadlineExceeded);
  Player player(exam, exam->hello);
  if (!player.Open()) return;
  ExpectRefusal(&patient, &player.probe(), Sentence::kHelloLimit, "no start",
                absl::StatusCode::kDeadlineExceeded);
}

void CheckShutdown(Exam* exam, const ConformanceOptions& options) {
  if (options.shut_down == nullptr) {
    return exam->findings->Skip(Sentence::kShutdown,
                                "the server was not to be told to");
  }
  Player player(exam, exam->hello);
  if (exam->gone || !player.Open() || !player.Start()) return;
  options.shut_down();
  ExpectRefusal(exam, &player.probe(), Sentence::kShutdown,
                "the server was told to shut down",
                absl::StatusCode::kUnavailable);
}

// Whole environments in both groups, if the server says how many slots they have.
void FitAgents(Exam* exam) {
  v1::GetSpecRequest request;
  request.set_env_id(exam->hello.env_id());
  *request.mutable_options() = exam->hello.options();
  const auto response = GetSpec(*exam, request);
  if (!response.ok()) return;  // who plays is told, too
  const auto agents = AgentsOf(response->spec());
  if (!agents.ok()) return;
  const int unit = *agents * exam->hello.num_groups();
  exam->hello.set_num_envs((exam->hello.num_envs() + unit - 1) / unit * unit);
}

void SkipWhatWasNotSeen(const Exam& exam, const v1::EnvSpec& spec) {
  Findings& findings = *exam.findings;
  findings.Skip(Sentence::kHelloLimit,
                "the limit is the server's own, and was not to be waited for");
  if (spec.episode_metric().empty()) {
    findings.Skip(Sentence::kEpisodeMetric, "none is declared");
  }
  if (spec.option().empty()) {
    findings.Skip(Sentence::kOptionsSorted, "none is declared");
  }
  findings.Skip(Sentence::kMaskPath, "no action has a mask");
  findings.Skip(Sentence::kMask, "no action has a mask");
  findings.Skip(Sentence::kActive, "every row always decides");
  if (spec.agents() <= 1) {
    findings.Skip(Sentence::kAgentEnds, "an environment has one agent");
  }
  findings.Skip(Sentence::kLeafBounds, "no leaf has bounds");
  findings.Skip(Sentence::kLeafValues, "no leaf is discrete");
  if (exam.tally.errors == 0) {
    findings.Skip(Sentence::kRowErrors, "no row failed");
  }
  if (exam.tally.ends == 0) {
    findings.SkipTheRest(
        absl::StrCat("no episode ended within ", exam.steps, " steps"));
  }
  findings.Skip(Sentence::kStepLimit, "no episode was that long");
  findings.SkipTheRest("the server did not get so far");
}

}  // namespace

Findings CheckConformance(const ConformanceOptions& options) {
  Findings findings;
  Exam exam = {.channel = options.channel,
               .timeout = options.timeout,
               .hello = MakeHello(options),
               .steps = options.steps,
               .findings = &findings};
  FitAgents(&exam);
  const auto spec = CheckFirstStream(&exam);
  if (!spec) {
    findings.SkipTheRest("no stream could be opened and read");
    return findings;
  }
  const auto hangs = [&] {
    return exam.gone || findings[Sentence::kInTime].verdict == Verdict::kFailed;
  };
  if (!hangs()) CheckGetSpec(&exam, *spec);
  if (!hangs()) CheckHelloRefusals(&exam, *spec);
  if (!hangs()) CheckStreams(&exam, *spec);
  if (!hangs()) CheckActionRefusals(&exam);
  if (!hangs()) CheckSeats(&exam);
  if (!hangs()) CheckSilence(&exam, options.hello_limit);
  if (!hangs()) CheckShutdown(&exam, options);
  JudgeEnds(exam.tally, &findings);
  if (hangs()) {
    findings.SkipTheRest(exam.gone ? "the server is gone"
                                   : "the server hung before");
  }
  SkipWhatWasNotSeen(exam, *spec);
  return findings;
}

}  // namespace flotilla
