#include "services/coordinator/session_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/rpc/grpc_status.h"

namespace flotilla {

std::shared_ptr<SessionStream> SessionStream::Start(
    SessionHost* host, grpc::CallbackServerContext* context) {
  std::shared_ptr<SessionStream> stream(new SessionStream(host, context));
  stream->self_ = stream;
  // So that the client knows that somebody listens before it is spoken to.
  stream->StartSendInitialMetadata();
  stream->StartRead(&stream->heartbeat_);
  return stream;
}

void SessionStream::Push() {
  MutexLock lock(&mu_);
  wanted_ = true;
  Proceed();
}

void SessionStream::Close(const absl::Status& status) {
  MutexLock lock(&mu_);
  if (!closing_.has_value()) closing_ = status;
  Proceed();
}

void SessionStream::Conclude(const absl::Status& status) {
  MutexLock lock(&mu_);
  wanted_ = concludes_ = true;
  if (!closing_.has_value()) closing_ = status;
  Proceed();
}

void SessionStream::Cut() {
  MutexLock lock(&mu_);
  if (!done_) context_->TryCancel();
}

void SessionStream::Proceed() {
  if (writing_ || finished_) return;
  if (closing_.has_value() && !(concludes_ && wanted_)) {
    finished_ = true;
    Finish(ToGrpc(*closing_));
  } else if (wanted_) {
    command_ = host_->NewestCommand(member_id_);
    command_.set_register_again(register_again_);
    wanted_ = false;
    writing_ = true;
    StartWrite(&command_);
  }
}

absl::Time SessionStream::last_heard() const {
  MutexLock lock(&mu_);
  return last_heard_;
}

std::string SessionStream::member_id() const {
  MutexLock lock(&mu_);
  return member_id_;
}

uint64_t SessionStream::incarnation() const {
  MutexLock lock(&mu_);
  return incarnation_;
}

void SessionStream::OnReadDone(bool ok) {
  if (!ok) {  // half-closed, or broken
    Close(absl::OkStatus());
    return;
  }
  const absl::Status status = TakeHeartbeat();
  if (!status.ok()) {
    Close(status);
    return;
  }
  StartRead(&heartbeat_);
}

absl::Status SessionStream::TakeHeartbeat() {
  {
    MutexLock lock(&mu_);
    last_heard_ = host_->Now();
    if (heartbeat_.member_id().empty()) {
      return absl::InvalidArgumentError("heartbeat.member_id is empty");
    }
    if (member_id_.empty()) {
      member_id_ = heartbeat_.member_id();
      incarnation_ = heartbeat_.incarnation();
    }
    if (member_id_ != heartbeat_.member_id() ||
        incarnation_ != heartbeat_.incarnation()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "this session is that of ", member_id_, ", incarnation ",
          incarnation_, "; a heartbeat came from ", heartbeat_.member_id(),
          ", incarnation ", heartbeat_.incarnation()));
    }
  }
  ASSIGN_OR_RETURN(const bool register_again,
                   host_->OnHeartbeat(self_, heartbeat_));
  MutexLock lock(&mu_);
  register_again_ = register_again;
  wanted_ = true;
  Proceed();
  return absl::OkStatus();
}

void SessionStream::OnWriteDone(bool ok) {
  MutexLock lock(&mu_);
  writing_ = false;
  if (!ok) {
    wanted_ = false;
    if (!closing_.has_value()) {
      closing_ = absl::CancelledError("the client went away");
    }
  }
  Proceed();
}

void SessionStream::OnCancel() {
  Close(absl::CancelledError("the client went away"));
}

void SessionStream::OnDone() {
  {
    MutexLock lock(&mu_);
    done_ = true;
  }
  host_->OnSessionOver(self_);
  // Lets go of the last reference outside the object.
  const std::shared_ptr<SessionStream> self = std::move(self_);
}

}  // namespace flotilla
