#include "services/env/dial_stream.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "services/env/wire.h"
#include "services/rpc/grpc_status.h"

namespace flotilla {
namespace {

constexpr size_t kMaxNameBytes = 256;

absl::Status CheckIntroduction(const v1::Introduction& introduction) {
  const std::string& id = introduction.server_id();
  if (id.empty() || id.size() > kMaxNameBytes ||
      !std::all_of(id.begin(), id.end(),
                   [](char c) { return absl::ascii_isgraph(c); })) {
    return absl::InvalidArgumentError(absl::StrCat(
        "introduction.server_id has ", id.size(), " bytes, want 1 to ",
        kMaxNameBytes,
        " of printable ASCII without spaces: the coordinator's Member.id"));
  }
  if (introduction.version().size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("introduction.version has ", introduction.version().size(),
                     " bytes, want at most ", kMaxNameBytes));
  }
  return absl::OkStatus();
}

}  // namespace

std::shared_ptr<DialStream> DialStream::Make(
    DialHost* host, grpc::CallbackServerContext* context) {
  std::shared_ptr<DialStream> stream(new DialStream(host, context));
  stream->self_ = stream;
  return stream;
}

void DialStream::Listen() {
  // So that the caller knows that somebody listens before it is spoken to.
  StartSendInitialMetadata();
  StartRead(&in_);
}

DialStream::Progress DialStream::Read(Clock::time_point deadline,
                                      grpc::ByteBuffer* message) {
  if (!AwaitReadable(deadline)) return Progress::kLate;
  MutexLock lock(&mu_);
  if (ended_.has_value() || !read_ok_) return Progress::kOver;
  message->Swap(&in_);
  reading_ = read_done_ = false;
  return Progress::kDone;
}

bool DialStream::AwaitReadable(Clock::time_point deadline) {
  MutexLock lock(&mu_);
  if (!reading_ && !ended_.has_value()) {
    reading_ = true;
    StartRead(&in_);
  }
  while (!read_done_ && !ended_.has_value()) {
    const Clock::time_point now = Clock::now();
    if (now >= deadline) return false;
    lock.WaitFor(&changed_, absl::FromChrono(deadline - now));
  }
  return true;
}

DialStream::Progress DialStream::Write(Clock::time_point deadline,
                                       grpc::ByteBuffer* message) {
  MutexLock lock(&mu_);
  while (writing_ && !ended_.has_value()) {
    const Clock::time_point now = Clock::now();
    if (now >= deadline) return Progress::kLate;
    lock.WaitFor(&changed_, absl::FromChrono(deadline - now));
  }
  if (ended_.has_value()) return Progress::kOver;
  out_.Swap(message);
  writing_ = true;
  StartWrite(&out_);
  return Progress::kDone;
}

void DialStream::End(const absl::Status& status) {
  std::shared_ptr<DialStream> self;
  {
    MutexLock lock(&mu_);
    if (ended_.has_value()) return;
    ended_ = status;
    changed_.notify_all();
    self = self_;
  }
  // Before the call can be over: the host may go when it knows that it is.
  host_->OnEnded(self);
  Finish(ToGrpc(status));
}

void DialStream::Cut() {
  MutexLock lock(&mu_);
  if (!done_) context_->TryCancel();
}

absl::Status DialStream::ended() const {
  MutexLock lock(&mu_);
  return ended_.value_or(absl::OkStatus());
}

void DialStream::OnReadDone(bool ok) {
  if (!introduced_) {
    const absl::Status status =
        ok ? TakeIntroduction()
           : absl::InvalidArgumentError(
                 "the env server closed the stream, want an introduction");
    if (!status.ok()) return End(status);
    introduced_ = true;
    {
      MutexLock lock(&mu_);
      reading_ = false;
    }
    return host_->OnIntroduced(self_);
  }
  MutexLock lock(&mu_);
  read_done_ = true;
  read_ok_ = ok;
  changed_.notify_all();
}

absl::Status DialStream::TakeIntroduction() {
  v1::PlayReply reply;
  if (!ParseMessage(in_, &reply)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", in_.Length(),
                     " bytes is not a flotilla.v1.PlayReply"));
  }
  in_.Clear();
  if (!reply.has_introduction()) {
    return absl::InvalidArgumentError("the first message is no introduction");
  }
  introduction_ = std::move(*reply.mutable_introduction());
  return CheckIntroduction(introduction_);
}

void DialStream::OnWriteDone(bool ok) {
  {
    MutexLock lock(&mu_);
    writing_ = false;
    changed_.notify_all();
  }
  if (!ok) End(absl::UnavailableError("the env server went away"));
}

void DialStream::OnCancel() {
  End(absl::UnavailableError("the env server went away"));
}

void DialStream::OnDone() {
  std::shared_ptr<DialStream> self;
  {
    MutexLock lock(&mu_);
    done_ = true;
    self = std::move(self_);
  }
  host_->OnGone(self);
}

}  // namespace flotilla
