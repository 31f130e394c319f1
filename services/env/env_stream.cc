#include "services/env/env_stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "flotilla/v1/env.grpc.pb.h"
#include "services/base/printable.h"
#include "services/base/status_macros.h"
#include "services/env/agent_ends.h"
#include "services/env/group_layout.h"
#include "services/env/numbers.h"
#include "services/env/play_call.h"
#include "services/env/ring.h"
#include "services/env/shared_region.h"
#include "services/env/wire.h"
#include "services/rpc/channel.h"

namespace flotilla {
namespace {

using Clock = PlayTransport::Clock;
using Progress = PlayTransport::Progress;

// How long the end of a stream may take, whoever ends it.
constexpr absl::Duration kFinishTimeout = absl::Seconds(2);
// Between two looks at whether a server that does not answer is there at all.
constexpr std::chrono::milliseconds kLookInterval(100);
// Between two looks at the stream beside a ring that nothing comes from, and
// while steps come.
constexpr std::chrono::milliseconds kLifelineInterval(10);
constexpr std::chrono::seconds kBusyLifelineInterval(1);
// For what has been sent in time to be read.
constexpr std::chrono::milliseconds kLateGrace(100);

absl::Status LateError() {
  return absl::DeadlineExceededError("the env server did not answer in time");
}

class GrpcEnvStream final : public EnvStream {
 public:
  GrpcEnvStream(std::string address, const EnvStreamOptions& options,
                std::unique_ptr<PlayTransport> transport)
      : address_(std::move(address)),
        options_(options),
        transport_(std::move(transport)) {}

  absl::Status Open(const v1::Hello& hello);

  const v1::EnvSpec& spec() const override { return welcome_.spec(); }
  absl::Status Receive(v1::StepBatch* batch) override;
  bool Ready(absl::Duration patience) override;
  absl::string_view Observation(const v1::StepBatch& batch,
                                int leaf) const override;
  absl::Status Send(const v1::ActionBatch& actions) override;
  absl::Status Finish() override;
  void Cancel() override;
  bool shares_memory() const override { return region_.has_value(); }
  bool has_ring() const override { return ring_ != nullptr; }
  int64_t refused_rows() const override { return refused_rows_; }

 private:
  struct Group {
    uint64_t seq = 0;  // of the step expected, or last received
    bool awaiting_step = true;
    Clock::time_point since;     // when it began to wait
    std::vector<uint8_t> blind;  // [R]  rows whose last observation was refused
    AgentEnds ends;
  };

  // Calls `operation` with a deadline until it is not late, or `deadline` has
  // passed. Errors: kDeadlineExceeded; how the stream ended, if it did.
  absl::Status Await(absl::FunctionRef<Progress(Clock::time_point)> operation,
                     Clock::time_point deadline);

  absl::Status ReadReply(Clock::time_point deadline);
  absl::Status Write(grpc::ByteBuffer message, Clock::time_point deadline);
  absl::Status ReceiveWelcome(const v1::Hello& hello,
                              Clock::time_point deadline);
  void ShareMemory(bool has_ring);
  // Blocks until the ring or the stream has something, or `deadline`: whether it
  // was the ring, or nothing at all came.
  enum class Came { kRing, kStream, kNothing };
  Came AwaitRing(Clock::time_point deadline);
  absl::Status ReadStep(Clock::time_point deadline);
  absl::Status ReadRing(Clock::time_point deadline);
  Clock::time_point StepDeadline() const;
  absl::Status CheckTurn(const v1::StepBatch& step) const;
  // Where the step's observations lie, per leaf [R, ...].
  std::span<const std::span<std::byte>> Arrays(v1::StepBatch* step);

  // Fails the stream: with how it ended, or `status`, which is ours.
  absl::Status EndStatus();
  absl::Status Fail(absl::Status status);
  absl::Status Describe(const absl::Status& status) const;

  const std::string address_;
  const EnvStreamOptions options_;
  const std::unique_ptr<PlayTransport> transport_;
  std::atomic<bool> cancelled_ = false;

  grpc::ByteBuffer in_;
  bool opened_ = false;
  bool half_closed_ = false;
  std::optional<absl::Status> ended_;

  v1::PlayReply reply_;  // swaps its step with the caller's batch
  v1::Welcome welcome_;
  GroupLayout layout_;
  std::optional<SharedRegion> region_;
  RingLayout ring_layout_;
  std::unique_ptr<Ring> ring_;         // null: messages
  std::atomic<Ring*> bell_ = nullptr;  // of ring_, for Cancel
  Clock::time_point looked_;           // at the stream, beside the ring
  Clock::time_point late_;             // the deadline that has passed
  int taken_late_ = 0;                 // steps that were received since
  std::vector<Group> groups_;
  std::vector<std::span<std::byte>> arrays_;
  std::vector<uint8_t> blind_;  // of a group's batch before
  int64_t refused_rows_ = 0;
};

Clock::duration ToClock(absl::Duration duration) {
  return absl::ToChronoNanoseconds(std::min(duration, absl::Hours(24 * 365)));
}

absl::Status GrpcEnvStream::Open(const v1::Hello& hello) {
  const Clock::time_point begin = Clock::now();
  const Clock::time_point deadline = begin + ToClock(options_.connect_timeout);
  RETURN_IF_ERROR(
      Await([&](Clock::time_point until) { return transport_->Connect(until); },
            std::min(deadline, begin + ToClock(options_.reach_timeout))));
  v1::PlayRequest request;
  *request.mutable_hello() = hello;
  request.mutable_hello()->set_protocol_version(1);
  RETURN_IF_ERROR(Write(Serialize(request), deadline));
  RETURN_IF_ERROR(ReceiveWelcome(hello, deadline));
  request.mutable_start();
  if (region_) {
    v1::SharedRegion* shared = request.mutable_start()->mutable_shared_memory();
    shared->set_slot_bytes(layout_.slot_bytes);
    shared->set_num_slots(static_cast<uint32_t>(layout_.groups));
    shared->set_ring_bytes(ring_layout_.bytes);
  }
  RETURN_IF_ERROR(Write(Serialize(request), deadline));
  for (Group& group : groups_) group.since = Clock::now();
  opened_ = true;
  return absl::OkStatus();
}

absl::Status GrpcEnvStream::ReceiveWelcome(const v1::Hello& hello,
                                           Clock::time_point deadline) {
  RETURN_IF_ERROR(ReadReply(deadline));
  if (!reply_.has_welcome()) {
    return Fail(absl::InternalError("the first reply is not a welcome"));
  }
  welcome_ = reply_.welcome();
  if (welcome_.protocol_version() != 1) {
    return Fail(absl::FailedPreconditionError(
        absl::StrCat("the server speaks protocol ", welcome_.protocol_version(),
                     ", this learner 1")));
  }
  if (welcome_.autoreset_mode() != "same_step") {
    return Fail(absl::FailedPreconditionError(
        absl::StrCat("the server's autoreset_mode is \"",
                     welcome_.autoreset_mode(), "\", want \"same_step\"")));
  }
  auto layout =
      MakeGroupLayout(welcome_.spec(), hello.num_envs(), hello.num_groups());
  if (!layout.ok()) return Fail(layout.status());
  layout_ = *std::move(layout);
  for (int g = 0; g < layout_.groups; ++g) {
    groups_.emplace_back().ends = AgentEnds(layout_);
  }
  if (hello.offer_shared_memory()) {
    ShareMemory(hello.offer_ring() && welcome_.ring());
  }
  return absl::OkStatus();
}

void GrpcEnvStream::ShareMemory(bool has_ring) {
  if (welcome_.shared_memory_socket().empty()) return;
  const size_t slots = layout_.slot_bytes * layout_.groups;
  if (has_ring) ring_layout_ = MakeRingLayout(spec(), layout_);
  auto region = SharedRegion::Create(slots + ring_layout_.bytes);
  // Where it does not work (a container, another host), inline does.
  if (!region.ok() || !SendRegion(welcome_.shared_memory_socket(),
                                  welcome_.shared_memory_token(), region->fd())
                           .ok()) {
    return;
  }
  region_.emplace(*std::move(region));
  if (!has_ring) return;
  ring_ = std::make_unique<Ring>(region_->bytes().subspan(slots), &ring_layout_,
                                 Ring::End::kLearner);
  ring_->SetSpin(options_.ring_spin);
  bell_ = ring_.get();
}

absl::Status GrpcEnvStream::Receive(v1::StepBatch* batch) {
  if (ended_) return *ended_;
  Clock::time_point deadline = StepDeadline();
  if (deadline == Clock::time_point::max()) {
    return absl::FailedPreconditionError(
        "Receive with no group waiting for a step; Send first");
  }
  // Whoever asks late, because it had to wait for others, takes what has come
  // meanwhile: one step of every group. After that one is stuck, though others
  // go on.
  if (const Clock::time_point now = Clock::now(); now >= deadline) {
    if (std::exchange(late_, deadline) != deadline) taken_late_ = 0;
    if (taken_late_++ == layout_.groups) return Fail(LateError());
    deadline = now + kLateGrace;
  }
  RETURN_IF_ERROR(ring_ != nullptr ? ReadRing(deadline) : ReadStep(deadline));
  v1::StepBatch* step = reply_.mutable_step();
  absl::Status status = CheckTurn(*step);
  if (status.ok()) {
    status = CheckStep(spec(), layout_, shares_memory(), *step);
  }
  // Before anything becomes an error that the server knows nothing of.
  if (status.ok()) status = groups_[step->group()].ends.Take(*step);
  if (!status.ok()) return Fail(std::move(status));
  groups_[step->group()].awaiting_step = false;
  Group& group = groups_[step->group()];
  group.blind.swap(blind_);
  refused_rows_ +=
      RefuseRows(spec(), layout_, Arrays(step), step, &group.blind);
  // What follows a refused observation cannot be learned from either.
  for (size_t row = 0; row < blind_.size(); ++row) {
    const auto same = [&](const v1::RowError& error) {
      return error.row() == static_cast<int>(row);
    };
    if (!blind_[row] ||
        std::any_of(step->error().begin(), step->error().end(), same)) {
      continue;
    }
    step->add_error()->set_row(static_cast<int>(row));
  }
  FailOtherSlots(layout_, step);
  for (v1::RowError& error : *step->mutable_error()) {
    error.set_message(PrintableLine(error.message()));
    error.set_traceback(PrintableText(error.traceback()));
  }
  batch->Swap(step);
  return absl::OkStatus();
}

absl::Status GrpcEnvStream::ReadStep(Clock::time_point deadline) {
  RETURN_IF_ERROR(ReadReply(deadline));
  if (reply_.has_step()) return absl::OkStatus();
  return Fail(absl::InternalError("the reply is not a step"));
}

absl::Status GrpcEnvStream::ReadRing(Clock::time_point deadline) {
  switch (AwaitRing(deadline)) {
    case Came::kRing:
      break;
    case Came::kStream:
      // Its end, or else:
      RETURN_IF_ERROR(ReadReply(deadline));
      return Fail(absl::InternalError(
          "a message came that no entry of the ring announced"));
    case Came::kNothing:
      return Fail(LateError());
  }
  const absl::StatusOr<bool> taken = TakeStep(
      spec(), layout_, ring_layout_, ring_->NextIn(), reply_.mutable_step());
  ring_->Take();
  if (!taken.ok()) return Fail(taken.status());
  if (*taken) return absl::OkStatus();
  const int group = reply_.step().group();
  const uint64_t seq = reply_.step().seq();
  RETURN_IF_ERROR(ReadStep(deadline));
  if (reply_.step().group() == group && reply_.step().seq() == seq) {
    return absl::OkStatus();
  }
  return Fail(absl::InternalError(
      absl::StrCat("the message is step ", reply_.step().seq(), " of group ",
                   reply_.step().group(), ", and the ring announced step ", seq,
                   " of group ", group)));
}

GrpcEnvStream::Came GrpcEnvStream::AwaitRing(Clock::time_point deadline) {
  for (;;) {
    // gRPC has work to do too, however fast steps come.
    const Clock::time_point now = Clock::now();
    bool readable = cancelled_;
    if (now - looked_ >= kBusyLifelineInterval) {
      looked_ = now;
      readable |= transport_->AwaitReadable(now);
    }
    if (ring_->Waiting() != 0 && !cancelled_) return Came::kRing;
    if (readable) return Came::kStream;
    if (now >= deadline) return Came::kNothing;
    ring_->Await(std::min(deadline, now + kLifelineInterval));
    if (ring_->Waiting() != 0 && !cancelled_) return Came::kRing;
    looked_ = Clock::time_point();
  }
}

std::span<const std::span<std::byte>> GrpcEnvStream::Arrays(
    v1::StepBatch* step) {
  arrays_.resize(spec().observation_size());
  for (size_t i = 0; i < arrays_.size(); ++i) {
    const size_t bytes = layout_.rows * layout_.observation_bytes[i];
    std::byte* const memory =
        region_ ? region_->bytes().data() + step->slot() * layout_.slot_bytes +
                      layout_.slot_offset[i]
                : reinterpret_cast<std::byte*>(
                      step->mutable_inline_()->mutable_leaf(i)->data());
    arrays_[i] = {memory, bytes};
  }
  return arrays_;
}

bool GrpcEnvStream::Ready(absl::Duration patience) {
  if (ended_) return true;
  const Clock::time_point limit = Clock::now() + ToClock(patience);
  const Clock::time_point step = StepDeadline();
  if (ring_ != nullptr) {
    return AwaitRing(std::min(limit, step)) != Came::kNothing ||
           Clock::now() >= step;
  }
  return transport_->AwaitReadable(std::min(limit, step)) ||
         Clock::now() >= step;
}

absl::Status GrpcEnvStream::CheckTurn(const v1::StepBatch& step) const {
  if (step.group() < 0 || step.group() >= layout_.groups) {
    return absl::InternalError(absl::StrCat(
        "step.group is ", step.group(), ", want 0 to ", layout_.groups - 1));
  }
  const Group& group = groups_[step.group()];
  if (group.awaiting_step && step.seq() == group.seq) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "step.seq of group ", step.group(), " is ", step.seq(), ", want ",
      group.seq, group.awaiting_step ? "" : " after its actions"));
}

absl::string_view GrpcEnvStream::Observation(const v1::StepBatch& batch,
                                             int leaf) const {
  if (!region_) return batch.inline_().leaf(leaf);
  const auto* slots = reinterpret_cast<const char*>(region_->bytes().data());
  return absl::string_view(
      slots + batch.slot() * layout_.slot_bytes + layout_.slot_offset[leaf],
      layout_.rows * layout_.observation_bytes[leaf]);
}

absl::Status GrpcEnvStream::Send(const v1::ActionBatch& actions) {
  if (ended_) return *ended_;
  if (actions.group() < 0 || actions.group() >= layout_.groups ||
      groups_[actions.group()].awaiting_step ||
      actions.seq() != groups_[actions.group()].seq) {
    return absl::FailedPreconditionError(
        absl::StrCat("actions for group ", actions.group(), ", seq ",
                     actions.seq(), " do not answer the group's last batch"));
  }
  Group& group = groups_[actions.group()];
  if (ring_ != nullptr) {
    const absl::Status put =
        PutActions(layout_, ring_layout_, actions, ring_->NextOut());
    if (!put.ok()) return Fail(put);
  }
  group.awaiting_step = true;
  ++group.seq;
  group.since = Clock::now();
  if (ring_ != nullptr) {
    ring_->Post();
    return absl::OkStatus();
  }
  return Write(SerializeActions(actions),
               group.since + ToClock(options_.step_timeout));
}

absl::Status GrpcEnvStream::Finish() {
  if (ended_) return *ended_;
  const Clock::time_point deadline = Clock::now() + ToClock(kFinishTimeout);
  half_closed_ = true;
  RETURN_IF_ERROR(Await(
      [&](Clock::time_point until) { return transport_->HalfClose(until); },
      deadline));
  // Steps still on their way are dropped.
  while (!ended_) {
    if (absl::Status status = ReadReply(deadline); !status.ok()) return status;
  }
  return std::exchange(ended_,
                       absl::FailedPreconditionError("the stream was finished"))
      .value();
}

void GrpcEnvStream::Cancel() {
  cancelled_ = true;
  transport_->Cancel();
  if (Ring* const ring = bell_.load()) ring->Interrupt();
}

Clock::time_point GrpcEnvStream::StepDeadline() const {
  Clock::time_point deadline = Clock::time_point::max();
  for (const Group& group : groups_) {
    if (!group.awaiting_step) continue;
    const absl::Duration timeout =
        group.seq == 0 ? options_.reset_timeout : options_.step_timeout;
    deadline = std::min(deadline, group.since + ToClock(timeout));
  }
  return deadline;
}

absl::Status GrpcEnvStream::Await(
    absl::FunctionRef<Progress(Clock::time_point)> operation,
    Clock::time_point deadline) {
  while (true) {
    const Clock::time_point until =
        opened_ ? deadline : std::min(deadline, Clock::now() + kLookInterval);
    const Progress progress = operation(until);
    if (progress == Progress::kDone) return absl::OkStatus();
    if (progress == Progress::kOver) return EndStatus();
    if (!opened_ && options_.gone()) {
      return Fail(absl::UnavailableError("the env server has ended"));
    }
    if (until < deadline) continue;
    return Fail(LateError());
  }
}

absl::Status GrpcEnvStream::ReadReply(Clock::time_point deadline) {
  RETURN_IF_ERROR(Await(
      [&](Clock::time_point until) { return transport_->Read(until, &in_); },
      deadline));
  if (ParseMessage(in_, &reply_)) return absl::OkStatus();
  return Fail(absl::InternalError(absl::StrCat(
      "a reply of ", in_.Length(), " bytes is not a flotilla.v1.PlayReply")));
}

absl::Status GrpcEnvStream::Write(grpc::ByteBuffer message,
                                  Clock::time_point deadline) {
  return Await(
      [&](Clock::time_point until) {
        return transport_->Write(until, &message);
      },
      deadline);
}

absl::Status GrpcEnvStream::EndStatus() {
  absl::Status status = transport_->End();
  if (status.ok() && !half_closed_) {
    status = absl::UnavailableError("the env server ended the stream");
  }
  if (cancelled_) status = absl::CancelledError("Cancel was called");
  ended_ = Describe(status);
  return *ended_;
}

absl::Status GrpcEnvStream::Fail(absl::Status status) {
  if (!ended_) {
    transport_->Fail(status);
    if (cancelled_) status = absl::CancelledError("Cancel was called");
    ended_ = Describe(status);
  }
  return *ended_;
}

absl::Status GrpcEnvStream::Describe(const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("env server ", address_, ": ",
                                   PrintableLine(status.message(), 2048)));
}

absl::Status CheckGroups(const v1::Hello& hello) {
  if (hello.num_groups() < 1 || hello.num_envs() < hello.num_groups() ||
      hello.num_envs() % hello.num_groups() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "hello.num_envs is ", hello.num_envs(), " and hello.num_groups ",
        hello.num_groups(), ", want environments that the groups divide"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<EnvStream>> Opened(
    const std::string& name, const v1::Hello& hello,
    const EnvStreamOptions& options, std::unique_ptr<PlayTransport> transport) {
  auto stream =
      std::make_unique<GrpcEnvStream>(name, options, std::move(transport));
  const std::stop_callback cancel(options.stop,
                                  [raw = stream.get()] { raw->Cancel(); });
  RETURN_IF_ERROR(stream->Open(hello));
  return stream;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EnvStream>> OpenEnvStream(
    const std::string& address, v1::Hello hello,
    const EnvStreamOptions& options) {
  RETURN_IF_ERROR(CheckGroups(hello));
  ASSIGN_OR_RETURN(auto channel, MakeChannel(address, options.credentials));
  return Opened(address, hello, options,
                std::make_unique<PlayCall>(std::move(channel)));
}

absl::StatusOr<std::unique_ptr<EnvStream>> OpenEnvStream(
    std::unique_ptr<PlayTransport> transport, const std::string& name,
    v1::Hello hello, const EnvStreamOptions& options) {
  RETURN_IF_ERROR(CheckGroups(hello));
  hello.set_offer_shared_memory(false);
  hello.set_offer_ring(false);
  return Opened(name, hello, options, std::move(transport));
}

}  // namespace flotilla
