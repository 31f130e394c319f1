#include "services/env/conformance/player.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"
#include "services/env/conformance/spec_check.h"

namespace flotilla {
namespace {

// Between two looks at the stream beside a ring.
constexpr std::chrono::milliseconds kRingSleep(5);

bool SeatIsTaken(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsAborted(status);
}

}  // namespace

void Exam::NoteSilence() {
  if (channel->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_READY) {
    gone = true;
  }
}

Player::Player(Exam* exam, const v1::Hello& hello, uint64_t action_seed)
    : exam_(*exam),
      findings_(*exam->findings),
      hello_(hello),
      action_seed_(action_seed) {}

bool Player::Open() {
  const absl::Time deadline = SteadyNow() + exam_.timeout;
  for (;;) {
    probe_ = std::make_unique<Probe>(exam_.channel);
    probe_->Send(Request(hello_), exam_.timeout);
    const Probe::Event event = probe_->Receive(exam_.timeout);
    if (event == Probe::Event::kEnded && SeatIsTaken(probe_->status()) &&
        SteadyNow() < deadline) {
      absl::SleepFor(kSeatPause);
      continue;
    }
    if (event == Probe::Event::kSilence) exam_.NoteSilence();
    return CheckWelcome(event);
  }
}

bool Player::CheckWelcome(Probe::Event event) {
  if (event != Probe::Event::kReply || !probe_->reply().has_welcome()) {
    findings_.Fail(Sentence::kWelcome,
                   absl::StrCat("after a hello for ", hello_.num_envs(), " x ",
                                hello_.env_id(), ", ", probe_->Describe(event),
                                ", want a welcome"));
    if (event == Probe::Event::kSilence) {
      findings_.Fail(Sentence::kInTime,
                     absl::StrCat("no welcome came within ",
                                  absl::FormatDuration(exam_.timeout)));
    }
    return false;
  }
  welcome_ = probe_->reply().welcome();
  findings_.Ok(Sentence::kWelcome);
  if (welcome_.protocol_version() != 1) {
    findings_.Fail(Sentence::kWelcome,
                   absl::StrCat("welcome.protocol_version is ",
                                welcome_.protocol_version(), ", want 1"));
  }
  if (welcome_.autoreset_mode() != "same_step") {
    findings_.Fail(
        Sentence::kWelcome,
        absl::StrCat("welcome.autoreset_mode is \"", welcome_.autoreset_mode(),
                     "\", want \"same_step\""));
  }
  if (!CheckSpec(spec(), &findings_)) return false;
  const int rows = hello_.num_envs() / hello_.num_groups();
  if (const int agents = std::max(spec().agents(), 1); rows % agents != 0) {
    findings_.Fail(
        Sentence::kAgents,
        absl::StrCat("spec.agents is ", agents, ", and a hello of groups of ",
                     rows, " rows was welcomed, want INVALID_ARGUMENT"));
    return false;
  }
  auto layout = MakeGroupLayout(spec(), hello_.num_envs(), hello_.num_groups());
  if (!layout.ok()) {
    // Of leaves in no order it was told already; the rest is their size.
    if (findings_[Sentence::kLeavesSorted].verdict != Verdict::kFailed) {
      findings_.Fail(Sentence::kLeafShapes, layout.status().message());
    }
    return false;
  }
  layout_ = *std::move(layout);
  groups_.resize(static_cast<size_t>(layout_.groups));
  draw_.emplace(spec(), hello_.num_envs(), action_seed_);
  check_.emplace(spec(), layout_, &findings_, &exam_.tally);
  return true;
}

absl::Status Player::Share() {
  const size_t slots = layout_.slot_bytes * static_cast<size_t>(layout_.groups);
  const bool ring = hello_.offer_ring() && welcome_.ring();
  if (ring) ring_layout_ = MakeRingLayout(spec(), layout_);
  ASSIGN_OR_RETURN(SharedRegion region,
                   SharedRegion::Create(slots + ring_layout_.bytes));
  RETURN_IF_ERROR(SendRegion(welcome_.shared_memory_socket(),
                             welcome_.shared_memory_token(), region.fd()));
  region_.emplace(std::move(region));
  if (ring) {
    ring_ = std::make_unique<Ring>(region_->bytes().subspan(slots),
                                   &ring_layout_, Ring::End::kLearner);
  }
  return absl::OkStatus();
}

bool Player::Start() {
  v1::Start start;
  if (region_) {
    start.mutable_shared_memory()->set_slot_bytes(layout_.slot_bytes);
    start.mutable_shared_memory()->set_num_slots(
        static_cast<uint32_t>(layout_.groups));
    start.mutable_shared_memory()->set_ring_bytes(ring_layout_.bytes);
  }
  probe_->Send(Request(start), exam_.timeout);
  for (int g = 0; g < layout_.groups; ++g) {
    if (!ReceiveStep()) return false;
  }
  return true;
}

std::string Player::Awaited() const {
  std::string words;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].awaits_step) continue;
    absl::StrAppend(&words, words.empty() ? "" : " or ", "the step of group ",
                    g, ", seq ", groups_[g].seq);
  }
  return words.empty() ? "none" : words;
}

Probe::Event Player::ReceiveRing() {
  const auto until =
      Ring::Clock::now() + absl::ToChronoNanoseconds(exam_.timeout);
  while (ring_->Waiting() == 0) {
    const Probe::Event event = message_ahead_
                                   ? Probe::Event::kReply
                                   : probe_->Receive(absl::ZeroDuration());
    if (event == Probe::Event::kReply) {
      // Its entry was posted before it was sent, and since we looked.
      message_ahead_ = ring_->Waiting() != 0;
      if (message_ahead_) break;
      findings_.Fail(
          Sentence::kRing,
          absl::StrCat("no entry of the ring announced what the stream has: ",
                       probe_->Describe(event)));
      return Probe::Event::kGarbage;
    }
    if (event != Probe::Event::kSilence || Ring::Clock::now() >= until) {
      return event;
    }
    ring_->Await(std::min(until, Ring::Clock::now() + kRingSleep));
  }
  const auto taken =
      TakeStep(spec(), layout_, ring_layout_, ring_->NextIn(), &ring_step_);
  ring_->Take();
  if (!taken.ok()) {
    findings_.Fail(Sentence::kRing, taken.status().message());
    return Probe::Event::kGarbage;
  }
  in_ring_ = *taken;
  if (in_ring_) return Probe::Event::kReply;
  const Probe::Event event = std::exchange(message_ahead_, false)
                                 ? Probe::Event::kReply
                                 : probe_->Receive(exam_.timeout);
  const v1::StepBatch& step = probe_->reply().step();
  if (event == Probe::Event::kReply && step.group() == ring_step_.group() &&
      step.seq() == ring_step_.seq()) {
    return event;
  }
  findings_.Fail(
      Sentence::kRing,
      absl::StrCat("the ring announced step ", ring_step_.seq(), " of group ",
                   ring_step_.group(), " as the stream's next message, and ",
                   probe_->Describe(event)));
  return event == Probe::Event::kReply ? Probe::Event::kGarbage : event;
}

bool Player::ReceiveStep() {
  in_ring_ = false;
  const Probe::Event event =
      ring_ != nullptr ? ReceiveRing() : probe_->Receive(exam_.timeout);
  const bool reset = std::any_of(
      groups_.begin(), groups_.end(),
      [](const Group& group) { return group.awaits_step && group.seq == 0; });
  if (event == Probe::Event::kSilence) {
    const std::string words =
        absl::StrCat("nothing came within ",
                     absl::FormatDuration(exam_.timeout), ", want ", Awaited());
    if (reset) findings_.Fail(Sentence::kReset, words);
    findings_.Fail(Sentence::kInTime, words);
    return false;
  }
  if (event != Probe::Event::kReply ||
      (!in_ring_ && !probe_->reply().has_step())) {
    findings_.Fail(reset ? Sentence::kReset : Sentence::kOneStep,
                   absl::StrCat(probe_->Describe(event), ", want ", Awaited()));
    return false;
  }
  findings_.Ok(Sentence::kInTime);
  const v1::StepBatch& step = in_ring_ ? ring_step_ : probe_->reply().step();
  if (!CheckTurn(step)) return false;
  Group& group = groups_[static_cast<size_t>(step.group())];
  group.awaits_step = false;
  group.active = step.active();
  return TakeObservations(step, &group) &&
         check_->Check(step, group.observation);
}

bool Player::CheckTurn(const v1::StepBatch& step) {
  if (step.group() < 0 || step.group() >= layout_.groups) {
    findings_.Fail(Sentence::kGroups,
                   absl::StrCat("step.group is ", step.group(), ", want 0 to ",
                                layout_.groups - 1));
    return false;
  }
  const Group& group = groups_[static_cast<size_t>(step.group())];
  if (!group.awaits_step) {
    const std::string words =
        absl::StrCat("a step of group ", step.group(), ", seq ", step.seq(),
                     ", came that no actions asked for, want ", Awaited());
    findings_.Fail(Sentence::kOneStep, words);
    // Or it is another's, by a wrong name.
    if (Awaited() != "none") findings_.Fail(Sentence::kGroups, words);
    return false;
  }
  if (step.seq() != group.seq) {
    findings_.Fail(group.seq == 0 ? Sentence::kReset : Sentence::kSeq,
                   absl::StrCat("step.seq of group ", step.group(), " is ",
                                step.seq(), ", want ", group.seq));
    findings_.Fail(Sentence::kSeq,
                   absl::StrCat("step.seq of group ", step.group(), " is ",
                                step.seq(), ", want ", group.seq));
    return false;
  }
  findings_.Ok(Sentence::kSeq);
  if (group.seq > 0) findings_.Ok(Sentence::kOneStep);
  return true;
}

bool Player::TakeObservations(const v1::StepBatch& step, Group* group) {
  const auto leaves = static_cast<size_t>(spec().observation_size());
  group->observation.resize(leaves);
  if (region_) {
    findings_.Ok(Sentence::kSharedSlot);
    if (step.payload_case() != v1::StepBatch::kSlot ||
        step.slot() != static_cast<uint32_t>(step.group())) {
      findings_.Fail(Sentence::kSharedSlot,
                     absl::StrCat("the step of group ", step.group(), " has ",
                                  step.payload_case() == v1::StepBatch::kSlot
                                      ? absl::StrCat("slot ", step.slot())
                                      : std::string("no slot"),
                                  ", want slot ", step.group()));
      return false;
    }
    const auto* slot = reinterpret_cast<const char*>(region_->bytes().data()) +
                       static_cast<size_t>(step.group()) * layout_.slot_bytes;
    for (size_t i = 0; i < leaves; ++i) {
      group->observation[i].assign(
          slot + layout_.slot_offset[i],
          static_cast<size_t>(layout_.rows) * layout_.observation_bytes[i]);
    }
    return true;
  }
  findings_.Ok(Sentence::kPayload);
  if (step.payload_case() != v1::StepBatch::kInline) {
    findings_.Fail(Sentence::kPayload,
                   absl::StrCat("the step of group ", step.group(), ", seq ",
                                step.seq(), " has no inline observations"));
    return false;
  }
  if (!SizesFit(step)) return false;
  for (size_t i = 0; i < leaves; ++i) {
    group->observation[i] = step.inline_().leaf(static_cast<int>(i));
  }
  return true;
}

bool Player::SizesFit(const v1::StepBatch& step) {
  findings_.Ok(Sentence::kObservationSizes);
  const std::string place =
      absl::StrCat(" in group ", step.group(), ", seq ", step.seq());
  const v1::Columns& columns = step.inline_();
  if (columns.leaf_size() != spec().observation_size()) {
    findings_.Fail(
        Sentence::kObservationSizes,
        absl::StrCat("step.inline has ", columns.leaf_size(), " leaves", place,
                     ", want ", spec().observation_size()));
    return false;
  }
  for (int i = 0; i < columns.leaf_size(); ++i) {
    const size_t row = layout_.observation_bytes[static_cast<size_t>(i)];
    const size_t want = static_cast<size_t>(layout_.rows) * row;
    if (columns.leaf(i).size() == want) continue;
    findings_.Fail(
        Sentence::kObservationSizes,
        absl::StrCat("step.inline.leaf[", i, "] (\"",
                     spec().observation(i).path(), "\") has ",
                     columns.leaf(i).size(), " bytes", place, ", want ", want,
                     " (", layout_.rows, " rows of ", row, ")"));
    return false;
  }
  return true;
}

bool Player::IsActive(int group, int row) const {
  const std::string& active = groups_[static_cast<size_t>(group)].active;
  return active.empty() || active[static_cast<size_t>(row)] != 0;
}

v1::ActionBatch Player::Draw(int group) {
  v1::ActionBatch actions;
  const Group& from = groups_[static_cast<size_t>(group)];
  actions.set_group(group);
  actions.set_seq(from.seq);
  for (int r = 0; r < layout_.rows; ++r) {
    draw_->Draw(
        group * layout_.rows + r,
        [&](int leaf) {
          const size_t bytes =
              layout_.observation_bytes[static_cast<size_t>(leaf)];
          return absl::string_view(from.observation[static_cast<size_t>(leaf)])
              .substr(static_cast<size_t>(r) * bytes, bytes);
        },
        &actions);
  }
  const auto noise = noise_ ? OutOfRange(spec()) : std::nullopt;
  for (int r = 0; noise && r < layout_.rows; ++r) {
    if (IsActive(group, r)) continue;
    actions.mutable_action(noise->leaf)
        ->replace(static_cast<size_t>(r) * noise->bytes.size(),
                  noise->bytes.size(), noise->bytes);
  }
  return actions;
}

bool Player::Send(const v1::ActionBatch& actions) {
  Group& group = groups_[static_cast<size_t>(actions.group())];
  ++group.seq;
  group.awaits_step = true;
  if (ring_ != nullptr) {
    const bool put =
        PutActions(layout_, ring_layout_, actions, ring_->NextOut()).ok();
    if (put) ring_->Post();
    return put;
  }
  if (probe_->Send(Request(actions), exam_.timeout)) return true;
  // If the stream has ended, a read says how.
  if (ReceiveStep()) {
    findings_.Fail(Sentence::kInTime,
                   absl::StrCat("actions for group ", actions.group(),
                                " were not taken within ",
                                absl::FormatDuration(exam_.timeout)));
  }
  return false;
}

bool Player::Step(const std::vector<int>& groups) {
  for (const int group : groups) {
    if (!Send(Draw(group))) return false;
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    if (!ReceiveStep()) return false;
  }
  return true;
}

bool Player::Play(int steps) {
  std::vector<int> all;
  for (int g = 0; g < layout_.groups; ++g) all.push_back(g);
  for (int i = 0; i < steps; ++i) {
    if (!Step(all)) return false;
  }
  return true;
}

bool Player::IsQuiet() {
  const Probe::Event event = probe_->Receive(std::min(kQuiet, exam_.timeout));
  if (event == Probe::Event::kSilence) return true;
  findings_.Fail(Sentence::kOneStep,
                 absl::StrCat(probe_->Describe(event),
                              ", and no actions were sent: want nothing"));
  return false;
}

bool Player::Finish() {
  probe_->HalfClose(exam_.timeout);
  const auto end = probe_->End(exam_.timeout);
  if (end && end->ok()) {
    findings_.Ok(Sentence::kHalfClose);
    return true;
  }
  findings_.Fail(
      Sentence::kHalfClose,
      end ? absl::StrCat("after a half-close ",
                         probe_->Describe(Probe::Event::kEnded), ", want OK")
          : absl::StrCat("after a half-close the stream did not end within ",
                         absl::FormatDuration(exam_.timeout), ", want OK"));
  return false;
}

}  // namespace flotilla
