#include "services/env/conformance/probe.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/printable.h"
#include "services/env/wire.h"
#include "services/rpc/grpc_status.h"

namespace flotilla {
namespace {

constexpr char kPlayMethod[] = "/flotilla.v1.EnvService/Play";
// Between the end of a stream's messages and its status.
constexpr std::chrono::seconds kStatusTimeout(2);

gpr_timespec ToGpr(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
      deadline - std::chrono::steady_clock::now());
  return gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC),
      gpr_time_from_nanos(std::max<int64_t>(left.count(), 0), GPR_TIMESPAN));
}

std::chrono::steady_clock::time_point After(absl::Duration timeout) {
  return std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
}

}  // namespace

Probe::Probe(std::shared_ptr<grpc::Channel> channel)
    : channel_(std::move(channel)) {
  context_.set_wait_for_ready(true);
  grpc::GenericStub stub(channel_);
  call_ = stub.PrepareCall(&context_, kPlayMethod, &queue_);
  Begin(kStart);
  call_->StartCall(Tag(kStart));
}

Probe::~Probe() {
  context_.TryCancel();
  queue_.Shutdown();
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
  }
}

bool Probe::Await(Op op, Clock::time_point deadline) {
  while (pending_[op]) {
    void* tag;
    bool ok;
    if (queue_.AsyncNext(&tag, &ok, ToGpr(deadline)) !=
        grpc::CompletionQueue::GOT_EVENT) {
      return false;
    }
    const intptr_t done = reinterpret_cast<intptr_t>(tag) - 1;
    pending_[done] = false;
    ok_[done] = ok;
  }
  return true;
}

bool Probe::Send(const v1::PlayRequest& request, absl::Duration timeout) {
  const Clock::time_point deadline = After(timeout);
  if (ended_ || !Await(kStart, deadline) || !ok_[kStart]) return false;
  if (!Await(kWrite, deadline)) return false;
  grpc::ByteBuffer message = Serialize(request);
  out_.Swap(&message);
  Begin(kWrite);
  call_->Write(out_, Tag(kWrite));
  return true;
}

Probe::Event Probe::Receive(absl::Duration timeout) {
  if (ended_) return Event::kEnded;
  const Clock::time_point deadline = After(timeout);
  if (!Await(kStart, deadline)) return Event::kSilence;
  if (!ok_[kStart]) return Ended(deadline);
  if (!reading_) {
    reading_ = true;
    Begin(kRead);
    call_->Read(&in_, Tag(kRead));
  }
  if (!Await(kRead, deadline)) return Event::kSilence;
  reading_ = false;
  if (!ok_[kRead]) return Ended(deadline);
  reply_.Clear();  // what did not come is to be seen as missing
  if (!ParseMessage(in_, &reply_)) return Event::kGarbage;
  return Event::kReply;
}

Probe::Event Probe::Ended(Clock::time_point deadline) {
  if (!pending_[kFinish]) {
    Begin(kFinish);
    call_->Finish(&finish_, Tag(kFinish));
  }
  deadline = std::max(deadline, Clock::now() + kStatusTimeout);
  if (!Await(kFinish, deadline)) {
    context_.TryCancel();
    Await(kFinish, Clock::now() + kStatusTimeout);
  }
  ended_ = true;
  const absl::Status status = pending_[kFinish]
                                  ? absl::UnavailableError("the stream broke")
                                  : FromGrpc(finish_);
  status_ = status.ok() ? status
                        : absl::Status(status.code(),
                                       PrintableLine(status.message(), 300));
  return Event::kEnded;
}

void Probe::HalfClose(absl::Duration timeout) {
  if (ended_ || !Await(kStart, After(timeout)) || !ok_[kStart]) return;
  if (!Await(kWrite, After(timeout)) || pending_[kHalfClose]) return;
  Begin(kHalfClose);
  call_->WritesDone(Tag(kHalfClose));
}

std::optional<absl::Status> Probe::End(absl::Duration timeout) {
  const Clock::time_point deadline = After(timeout);
  for (;;) {
    const absl::Duration left = absl::FromChrono(deadline - Clock::now());
    const Event event = Receive(std::max(left, absl::ZeroDuration()));
    if (event == Event::kEnded) return status_;
    // A server that never stops sending is no better than a silent one.
    if (event == Event::kSilence || left <= absl::ZeroDuration()) {
      Cancel();
      Ended(Clock::now());
      return std::nullopt;
    }
  }
}

std::string Probe::Describe(Event event) const {
  switch (event) {
    case Event::kReply:
      if (reply_.has_welcome()) return "a welcome came";
      if (reply_.has_step()) {
        return absl::StrCat("a step came (group ", reply_.step().group(),
                            ", seq ", reply_.step().seq(), ")");
      }
      return "a reply with nothing in it came";
    case Event::kGarbage:
      return absl::StrCat("a message of ", in_.Length(),
                          " bytes came that is no flotilla.v1.PlayReply");
    case Event::kEnded:
      return absl::StrCat("the stream ended with ",
                          absl::StatusCodeToString(status_.code()),
                          status_.message().empty() ? "" : ": ",
                          std::string(status_.message()));
    case Event::kSilence:
      break;
  }
  return "nothing came within the timeout";
}

v1::PlayRequest Request(const v1::Hello& hello) {
  v1::PlayRequest request;
  *request.mutable_hello() = hello;
  return request;
}

v1::PlayRequest Request(const v1::Start& start) {
  v1::PlayRequest request;
  *request.mutable_start() = start;
  return request;
}

v1::PlayRequest Request(const v1::ActionBatch& actions) {
  v1::PlayRequest request;
  *request.mutable_actions() = actions;
  return request;
}

}  // namespace flotilla
