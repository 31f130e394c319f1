#include "services/env/conformance/streams.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/env/conformance/action_draw.h"
#include "services/env/conformance/refusals.h"
#include "services/env/conformance/trace.h"
#include "services/env/group_layout.h"

namespace flotilla {
namespace {

// Episodes that are short enough to see many ends.
constexpr int64_t kShortEpisode = 11;
// What a seed is seen by.
constexpr int kSeedSteps = 32;

constexpr char kNotDeterministic[] =
    "cannot be told where the same hello and actions give other steps";

// A whole stream. Nullopt: it failed, as reported.
std::optional<Trace> PlayWhole(Exam* exam, const v1::Hello& hello, int steps,
                               uint64_t action_seed = 1) {
  if (exam->gone) return std::nullopt;
  Player player(exam, hello, action_seed);
  if (!player.Open() || !player.Start() || !player.Play(steps)) {
    return std::nullopt;
  }
  player.Finish();
  return player.trace();
}

// One group alone to its last step, before another begins.
std::optional<Trace> PlayOneByOne(Exam* exam, const v1::Hello& hello) {
  if (exam->gone) return std::nullopt;
  Player player(exam, hello);
  if (!player.Open() || !player.Start()) return std::nullopt;
  for (int group = hello.num_groups() - 1; group >= 0; --group) {
    for (int i = 0; i < exam->steps; ++i) {
      if (!player.Step({group})) return std::nullopt;
    }
  }
  player.Finish();
  return player.trace();
}

void Compare(Exam* exam, const v1::EnvSpec& spec, Sentence sentence,
             const char* what, const Trace& reference,
             const std::optional<Trace>& other) {
  if (!other) return;
  const std::string difference = FirstDifference(spec, reference, *other);
  if (difference.empty()) return exam->findings->Ok(sentence);
  exam->findings->Fail(sentence, absl::StrCat(what, ": ", difference));
}

// What nobody is to obey changes nothing.
void CheckIdle(Exam* exam, const v1::EnvSpec& spec, const v1::Hello& hello,
               const Trace& reference) {
  Findings& findings = *exam->findings;
  const bool idle = std::any_of(
      reference.begin(), reference.end(), [](const std::vector<RowStep>& row) {
        return std::any_of(row.begin(), row.end(),
                           [](const RowStep& step) { return !step.active; });
      });
  if (!idle || !OutOfRange(spec)) {
    return findings.Skip(Sentence::kActionIdle, "no slot was ever idle");
  }
  Player player(exam, hello);
  if (exam->gone || !player.Open() || !player.Start()) return;
  player.SendNoise();
  if (!player.Play(exam->steps)) {
    return findings.Fail(Sentence::kActionIdle,
                         "after actions out of range for slots that are not "
                         "active, the stream could not be played to its end");
  }
  player.Finish();
  Compare(exam, spec, Sentence::kActionIdle,
          "with other actions for slots that are not active", reference,
          player.trace());
}

// The hello of short episodes, if the server makes them.
v1::Hello ShortEpisodes(Exam* exam, const v1::EnvSpec& spec) {
  Findings& findings = *exam->findings;
  v1::Hello hello = exam->hello;
  const int64_t asked = hello.options().max_episode_steps();
  const auto check = [&](int64_t limit, int64_t want) {
    if (limit == want) {
      findings.Ok(Sentence::kLimitOption);
      return true;
    }
    findings.Fail(Sentence::kLimitOption,
                  absl::StrCat("with options.max_episode_steps ", want,
                               " the welcome's max_episode_steps is ", limit));
    return false;
  };
  if (asked > 0) {
    check(spec.max_episode_steps(), asked);
    return hello;
  }
  hello.mutable_options()->set_max_episode_steps(kShortEpisode);
  Player player(exam, hello);
  // Played to its end, for a stream that is dropped may keep the seat.
  if (!player.Open() || !player.Start() || !player.Finish()) {
    return exam->hello;
  }
  return check(player.spec().max_episode_steps(), kShortEpisode) ? hello
                                                                 : exam->hello;
}

void CheckStarts(Exam* exam, const v1::EnvSpec& spec, const v1::Hello& hello,
                 const Trace& reference) {
  const auto other = PlayWhole(exam, hello, exam->steps, /*action_seed=*/2);
  if (!other) return;
  int compared = 0;
  const std::string difference =
      FirstOtherStart(spec, reference, *other, &compared);
  if (!difference.empty()) {
    exam->findings->Fail(Sentence::kEpisodeStart, difference);
  } else if (compared > 0) {
    exam->findings->Ok(Sentence::kEpisodeStart);
  } else {
    exam->findings->Skip(
        Sentence::kEpisodeStart,
        absl::StrCat("no game ended within ", exam->steps, " steps"));
  }
}

void CheckSeeds(Exam* exam, const v1::EnvSpec& spec, const Trace& reference) {
  struct Case {
    const char* field;
    std::function<void(v1::Hello*)> change;
  };
  const Case cases[] = {
      {"seed", [](v1::Hello* h) { h->set_seed(h->seed() + 1); }},
      {"worker_id", [](v1::Hello* h) { h->set_worker_id(h->worker_id() + 1); }},
      {"incarnation",
       [](v1::Hello* h) { h->set_incarnation(h->incarnation() + 1); }}};
  std::vector<std::string> same;
  const int steps = std::min(kSeedSteps, exam->steps);
  for (const Case& c : cases) {
    v1::Hello hello = exam->hello;
    c.change(&hello);
    const auto other = PlayWhole(exam, hello, steps);
    if (!other) return;
    if (FirstDifference(spec, reference, *other).empty()) {
      same.push_back(c.field);
    }
  }
  if (same.empty()) return exam->findings->Ok(Sentence::kSeeds);
  exam->findings->Warn(
      Sentence::kSeeds,
      absl::StrCat("another ", absl::StrJoin(same, ", another "),
                   " changed nothing in ", steps,
                   " steps: fine only where nothing is random"));
}

// Tells the server of a slot's size that is another.
void CheckBadRegion(Exam* exam, const v1::Hello& hello) {
  Player player(exam, hello);
  if (exam->gone || !player.Open() || !player.Share().ok()) return;
  v1::Start start;
  start.mutable_shared_memory()->set_slot_bytes(player.layout().slot_bytes +
                                                64);
  start.mutable_shared_memory()->set_num_slots(
      static_cast<uint32_t>(hello.num_groups()));
  player.probe().Send(Request(start), exam->timeout);
  ExpectRefusal(exam, &player.probe(), Sentence::kSharedRegion,
                absl::StrCat("start.shared_memory.slot_bytes ",
                             start.shared_memory().slot_bytes(), " instead of ",
                             player.layout().slot_bytes),
                absl::StatusCode::kInvalidArgument);
}

// The same game as through shared memory, with steps and actions there too.
void CheckRing(Exam* exam, const v1::EnvSpec& spec, v1::Hello hello,
               const Trace* reference) {
  if (exam->gone) return;
  Findings& findings = *exam->findings;
  hello.set_offer_ring(true);
  Player player(exam, hello);
  if (!player.Open()) return;
  if (!player.welcome().ring()) {
    return findings.Skip(Sentence::kRing, "the welcome has none");
  }
  if (!player.Share().ok()) {
    return findings.Skip(Sentence::kRing, "no region could be passed");
  }
  if (!player.Start() || !player.Play(exam->steps)) {
    return findings.Fail(Sentence::kRing,
                         "with rings in the region, the stream could not be "
                         "played to its end");
  }
  player.Finish();
  if (reference == nullptr) {
    return findings.Skip(Sentence::kRing, kNotDeterministic);
  }
  Compare(exam, spec, Sentence::kRing, "through the rings and in messages",
          *reference, player.trace());
}

// `reference` was played with `hello` inline; null if that tells nothing.
void CheckSharedMemory(Exam* exam, const v1::EnvSpec& spec, v1::Hello hello,
                       const Trace* reference) {
  if (exam->gone) return;
  Findings& findings = *exam->findings;
  const auto skip = [&](const std::string& why) {
    for (const Sentence sentence :
         {Sentence::kSharedMemory, Sentence::kSharedSlot,
          Sentence::kSharedRegion, Sentence::kRing}) {
      findings.Skip(sentence, why);
    }
  };
  hello.set_offer_shared_memory(true);
  Player player(exam, hello);
  if (!player.Open()) return;
  const std::string& socket = player.welcome().shared_memory_socket();
  if (socket.empty()) return skip("the welcome offers no socket");
  const absl::Status shared = player.Share();
  if (absl::IsInvalidArgument(shared)) {
    skip("no region could be passed");
    return findings.Fail(Sentence::kSharedMemory,
                         std::string(shared.message()));
  }
  if (!shared.ok()) {
    findings.Warn(Sentence::kSharedMemory,
                  absl::StrCat("welcome.shared_memory_socket is \"", socket,
                               "\", and nobody takes a region there: fine only "
                               "if the server is on another host"));
    return skip("no region could be passed");
  }
  if (!player.Start() || !player.Play(exam->steps)) {
    return findings.Fail(Sentence::kSharedMemory,
                         "after the region was passed, the stream could not be "
                         "played to its end");
  }
  player.Finish();
  if (reference == nullptr) {
    findings.Skip(Sentence::kSharedMemory, kNotDeterministic);
  } else {
    Compare(exam, spec, Sentence::kSharedMemory,
            "through the region and inline", *reference, player.trace());
  }
  CheckBadRegion(exam, hello);
  CheckRing(exam, spec, hello, reference);
}

}  // namespace

std::optional<v1::EnvSpec> CheckFirstStream(Exam* exam) {
  Findings& findings = *exam->findings;
  Player player(exam, exam->hello);
  if (!player.Open()) return std::nullopt;
  const Probe::Event early =
      player.probe().Receive(std::min(kQuiet, exam->timeout));
  if (early != Probe::Event::kSilence) {
    findings.Fail(
        Sentence::kSilentUntilStart,
        absl::StrCat("before the start ", player.probe().Describe(early),
                     ", want nothing"));
    return player.spec();
  }
  findings.Ok(Sentence::kSilentUntilStart);
  // Twice: between resets and actions, and after the last step.
  if (player.Start() && player.IsQuiet() && player.Play(exam->steps) &&
      player.IsQuiet()) {
    player.Finish();
  }
  return player.spec();
}

void CheckStreams(Exam* exam, const v1::EnvSpec& spec) {
  Findings& findings = *exam->findings;
  const auto first = PlayWhole(exam, exam->hello, exam->steps);
  const auto again = PlayWhole(exam, exam->hello, exam->steps);
  if (!first || !again) return;
  Compare(exam, spec, Sentence::kDeterministic, "played twice", *first, again);
  CheckSeeds(exam, spec, *first);

  const v1::Hello hello = ShortEpisodes(exam, spec);
  const auto reference = PlayWhole(exam, hello, exam->steps);
  if (!reference) return;
  if (findings[Sentence::kDeterministic].verdict == Verdict::kFailed) {
    findings.Skip(Sentence::kEpisodeStart, kNotDeterministic);
    findings.Skip(Sentence::kRowsOverAll, kNotDeterministic);
    PlayOneByOne(exam, hello);
    return CheckSharedMemory(exam, spec, hello, nullptr);
  }
  CheckStarts(exam, spec, hello, *reference);
  CheckIdle(exam, spec, hello, *reference);
  Compare(exam, spec, Sentence::kGroups,
          "each group alone, and all groups together", *reference,
          PlayOneByOne(exam, hello));
  if (MakeGroupLayout(spec, hello.num_envs(), 1).ok()) {
    v1::Hello one_group = hello;
    one_group.set_num_groups(1);
    Compare(exam, spec, Sentence::kRowsOverAll,
            absl::StrCat("in one group and in ", hello.num_groups()).c_str(),
            *reference, PlayWhole(exam, one_group, exam->steps));
  } else {
    findings.Skip(Sentence::kRowsOverAll,
                  absl::StrCat(hello.num_envs(),
                               " rows of this size do not fit into one group"));
  }
  CheckSharedMemory(exam, spec, hello, &*reference);
}

}  // namespace flotilla
