#include "services/env/env_stream.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "flotilla/v1/env.grpc.pb.h"
#include "services/base/printable.h"
#include "services/base/status_macros.h"
#include "services/env/agent_ends.h"
#include "services/env/group_layout.h"
#include "services/env/numbers.h"
#include "services/env/shared_region.h"
#include "services/env/wire.h"
#include "services/rpc/channel.h"
#include "services/rpc/grpc_status.h"

namespace flotilla {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kPlayMethod[] = "/flotilla.v1.EnvService/Play";
// How long the end of a stream may take, whoever ends it.
constexpr absl::Duration kFinishTimeout = absl::Seconds(2);
// Between two looks at whether a server that does not answer is there at all.
constexpr std::chrono::milliseconds kLookInterval(100);

// A Play stream over a completion queue of its own: the calling thread polls
// the connection itself, so a batch costs no change of threads, and a wait has
// a deadline without a timer.
class GrpcEnvStream final : public EnvStream {
 public:
  GrpcEnvStream(std::string address, const EnvStreamOptions& options,
                std::shared_ptr<grpc::Channel> channel)
      : address_(std::move(address)),
        options_(options),
        channel_(std::move(channel)) {}

  ~GrpcEnvStream() override;

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
  int64_t refused_rows() const override { return refused_rows_; }

 private:
  enum class Op : intptr_t { kStart = 1, kRead, kWrite, kHalfClose, kFinish };
  struct Group {
    uint64_t seq = 0;  // of the step expected, or last received
    bool awaiting_step = true;
    Clock::time_point since;     // when it began to wait
    std::vector<uint8_t> blind;  // [R]  rows whose last observation was refused
    AgentEnds ends;
  };

  static void* Tag(Op op) { return reinterpret_cast<void*>(op); }
  bool& Pending(Op op) { return pending_[static_cast<size_t>(op)]; }
  void Begin(Op op) { Pending(op) = true; }

  // Runs the queue until `op` has completed. Errors: kDeadlineExceeded; how the
  // stream ended, if `op` failed.
  absl::Status Await(Op op, Clock::time_point deadline);
  // One completion; false at the deadline.
  bool Next(Clock::time_point deadline);
  void BeginRead();

  absl::Status ReadReply(Clock::time_point deadline);
  absl::Status Write(grpc::ByteBuffer message, Clock::time_point deadline);
  absl::Status ReceiveWelcome(const v1::Hello& hello,
                              Clock::time_point deadline);
  void ShareMemory();
  Clock::time_point StepDeadline() const;
  absl::Status CheckTurn(const v1::StepBatch& step) const;
  // Where the step's observations lie, per leaf [R, ...].
  std::span<const std::span<std::byte>> Arrays(v1::StepBatch* step);

  // Fails the stream: with the server's status, or `status`, which is ours.
  absl::Status EndStatus();
  absl::Status Fail(absl::Status status);
  absl::Status Describe(const absl::Status& status) const;

  const std::string address_;
  const EnvStreamOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;

  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  std::atomic<bool> cancelled_ = false;

  bool pending_[6] = {};
  bool ok_[6] = {};
  grpc::ByteBuffer in_;
  grpc::ByteBuffer out_;
  grpc::Status finish_status_;
  bool opened_ = false;
  bool reading_ = false;  // a read was begun whose reply nobody took
  bool half_closed_ = false;
  std::optional<absl::Status> ended_;

  v1::PlayReply reply_;  // swaps its step with the caller's batch
  v1::Welcome welcome_;
  GroupLayout layout_;
  std::optional<SharedRegion> region_;
  std::vector<Group> groups_;
  std::vector<std::span<std::byte>> arrays_;
  std::vector<uint8_t> blind_;  // of a group's batch before
  int64_t refused_rows_ = 0;
};

Clock::duration ToClock(absl::Duration duration) {
  return absl::ToChronoNanoseconds(std::min(duration, absl::Hours(24 * 365)));
}

gpr_timespec ToGpr(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
      deadline - Clock::now());
  return gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC),
      gpr_time_from_nanos(std::max<int64_t>(left.count(), 0), GPR_TIMESPAN));
}

GrpcEnvStream::~GrpcEnvStream() {
  context_.TryCancel();
  queue_.Shutdown();
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
  }
}

absl::Status GrpcEnvStream::Open(const v1::Hello& hello) {
  const Clock::time_point deadline =
      Clock::now() + ToClock(options_.connect_timeout);
  context_.set_wait_for_ready(true);
  grpc::GenericStub stub(channel_);
  call_ = stub.PrepareCall(&context_, kPlayMethod, &queue_);
  Begin(Op::kStart);
  call_->StartCall(Tag(Op::kStart));
  RETURN_IF_ERROR(Await(Op::kStart, deadline));
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
  if (hello.offer_shared_memory()) ShareMemory();
  return absl::OkStatus();
}

void GrpcEnvStream::ShareMemory() {
  if (welcome_.shared_memory_socket().empty()) return;
  auto region = SharedRegion::Create(layout_.slot_bytes * layout_.groups);
  // Where it does not work (a container, another host), inline does.
  if (region.ok() && SendRegion(welcome_.shared_memory_socket(),
                                welcome_.shared_memory_token(), region->fd())
                         .ok()) {
    region_.emplace(*std::move(region));
  }
}

absl::Status GrpcEnvStream::Receive(v1::StepBatch* batch) {
  if (ended_) return *ended_;
  const Clock::time_point deadline = StepDeadline();
  if (deadline == Clock::time_point::max()) {
    return absl::FailedPreconditionError(
        "Receive with no group waiting for a step; Send first");
  }
  RETURN_IF_ERROR(ReadReply(deadline));
  if (!reply_.has_step()) {
    return Fail(absl::InternalError("the reply is not a step"));
  }
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
  if (!reading_) BeginRead();
  const Clock::time_point limit = Clock::now() + ToClock(patience);
  const Clock::time_point step = StepDeadline();
  while (Pending(Op::kRead)) {
    if (!Next(std::min(limit, step))) return Clock::now() >= step;
  }
  return true;
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
  group.awaiting_step = true;
  ++group.seq;
  group.since = Clock::now();
  return Write(SerializeActions(actions),
               group.since + ToClock(options_.step_timeout));
}

absl::Status GrpcEnvStream::Finish() {
  if (ended_) return *ended_;
  const Clock::time_point deadline = Clock::now() + ToClock(kFinishTimeout);
  if (Pending(Op::kWrite)) RETURN_IF_ERROR(Await(Op::kWrite, deadline));
  half_closed_ = true;
  Begin(Op::kHalfClose);
  call_->WritesDone(Tag(Op::kHalfClose));
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
  context_.TryCancel();
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

bool GrpcEnvStream::Next(Clock::time_point deadline) {
  void* tag;
  bool ok;
  if (queue_.AsyncNext(&tag, &ok, ToGpr(deadline)) !=
      grpc::CompletionQueue::GOT_EVENT) {
    return false;
  }
  const size_t op = static_cast<size_t>(reinterpret_cast<intptr_t>(tag));
  pending_[op] = false;
  ok_[op] = ok;
  return true;
}

absl::Status GrpcEnvStream::Await(Op op, Clock::time_point deadline) {
  while (Pending(op)) {
    const Clock::time_point until =
        opened_ ? deadline : std::min(deadline, Clock::now() + kLookInterval);
    if (Next(until)) continue;
    if (!opened_ && options_.gone()) {
      return Fail(absl::UnavailableError("the env server has ended"));
    }
    if (until < deadline) continue;
    return Fail(
        absl::DeadlineExceededError("the env server did not answer in time"));
  }
  return ok_[static_cast<size_t>(op)] ? absl::OkStatus() : EndStatus();
}

void GrpcEnvStream::BeginRead() {
  reading_ = true;
  Begin(Op::kRead);
  call_->Read(&in_, Tag(Op::kRead));
}

absl::Status GrpcEnvStream::ReadReply(Clock::time_point deadline) {
  if (!reading_) BeginRead();
  RETURN_IF_ERROR(Await(Op::kRead, deadline));
  reading_ = false;
  if (ParseMessage(in_, &reply_)) return absl::OkStatus();
  return Fail(absl::InternalError(absl::StrCat(
      "a reply of ", in_.Length(), " bytes is not a flotilla.v1.PlayReply")));
}

absl::Status GrpcEnvStream::Write(grpc::ByteBuffer message,
                                  Clock::time_point deadline) {
  if (Pending(Op::kWrite)) RETURN_IF_ERROR(Await(Op::kWrite, deadline));
  out_.Swap(&message);
  Begin(Op::kWrite);
  call_->Write(out_, Tag(Op::kWrite));
  return absl::OkStatus();
}

absl::Status GrpcEnvStream::EndStatus() {
  const Clock::time_point deadline = Clock::now() + ToClock(kFinishTimeout);
  Begin(Op::kFinish);
  call_->Finish(&finish_status_, Tag(Op::kFinish));
  while (Pending(Op::kFinish)) {
    if (Next(deadline)) continue;
    context_.TryCancel();
    if (!Next(Clock::now() + ToClock(kFinishTimeout))) break;
  }
  absl::Status status = FromGrpc(finish_status_);
  if (Pending(Op::kFinish)) {
    status = absl::UnavailableError("the stream broke");
  } else if (status.ok() && !half_closed_) {
    status = absl::UnavailableError("the env server ended the stream");
  }
  if (cancelled_) status = absl::CancelledError("Cancel was called");
  ended_ = Describe(status);
  return *ended_;
}

absl::Status GrpcEnvStream::Fail(absl::Status status) {
  if (!ended_) {
    context_.TryCancel();
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

}  // namespace

absl::StatusOr<std::unique_ptr<EnvStream>> OpenEnvStream(
    const std::string& address, v1::Hello hello,
    const EnvStreamOptions& options) {
  if (hello.num_groups() < 1 || hello.num_envs() < hello.num_groups() ||
      hello.num_envs() % hello.num_groups() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "hello.num_envs is ", hello.num_envs(), " and hello.num_groups ",
        hello.num_groups(), ", want environments that the groups divide"));
  }
  ASSIGN_OR_RETURN(auto channel, MakeChannel(address, options.credentials));
  auto stream =
      std::make_unique<GrpcEnvStream>(address, options, std::move(channel));
  const std::stop_callback cancel(options.stop,
                                  [raw = stream.get()] { raw->Cancel(); });
  RETURN_IF_ERROR(stream->Open(hello));
  return stream;
}

}  // namespace flotilla
