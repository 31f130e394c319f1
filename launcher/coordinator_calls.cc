#include "launcher/coordinator_calls.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/coordinator/member_metadata.h"
#include "services/rpc/grpc_status.h"
#include "services/rpc/refusal.h"

namespace flotilla {
namespace {

void SetDeadline(absl::Duration timeout, grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() +
                        absl::ToChronoMilliseconds(timeout));
}

// Connects within a second, or not.
bool Connects(const addrinfo& target) {
  const int fd =
      socket(target.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  connect(fd, target.ai_addr, target.ai_addrlen);
  pollfd entry = {.fd = fd, .events = POLLOUT, .revents = 0};
  int error = 1;
  socklen_t size = sizeof(error);
  const bool connected =
      poll(&entry, 1, 1000) == 1 &&
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
  close(fd);
  return connected;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorCalls>> CoordinatorCalls::Make(
    const std::string& address, const RpcCredentials& credentials) {
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                   MakeChannel(address, credentials));
  return std::unique_ptr<CoordinatorCalls>(
      new CoordinatorCalls(address, credentials, channel));
}

absl::StatusOr<v1::Status> CoordinatorCalls::GetStatus(absl::Duration timeout) {
  grpc::ClientContext context;
  SetDeadline(timeout, &context);
  v1::Status status;
  RETURN_IF_ERROR(Explain(stub_->GetStatus(&context, {}, &status)));
  return status;
}

absl::Status CoordinatorCalls::WatchStatus(
    absl::Duration interval,
    const std::function<bool(const v1::Status&)>& on_status,
    std::stop_token stop) {
  grpc::ClientContext context;
  const std::stop_callback cancels(stop, [&] { context.TryCancel(); });
  v1::WatchStatusRequest request;
  request.set_interval_ms(absl::ToInt64Milliseconds(interval));
  const auto stream = stub_->WatchStatus(&context, request);
  v1::Status status;
  while (stream->Read(&status)) {
    if (!on_status(status)) {
      context.TryCancel();
      stream->Finish();
      return absl::OkStatus();
    }
  }
  const grpc::Status ended = stream->Finish();
  return stop.stop_requested() ? absl::OkStatus() : Explain(ended);
}

absl::Status CoordinatorCalls::Stop(const std::string& reason,
                                    absl::Duration timeout) {
  grpc::ClientContext context;
  SetDeadline(timeout, &context);
  v1::StopRequest request;
  request.set_reason(reason);
  v1::StopResponse response;
  return Explain(stub_->Stop(&context, request, &response));
}

absl::StatusOr<v1::Change> CoordinatorCalls::Set(
    const std::vector<std::string>& overrides, absl::Duration timeout) {
  grpc::ClientContext context;
  // The coordinator has more to say at its own deadline than this one has.
  SetDeadline(timeout + absl::Seconds(5), &context);
  v1::SetRequest request;
  request.mutable_override()->Assign(overrides.begin(), overrides.end());
  request.set_timeout_ms(absl::ToInt64Milliseconds(timeout));
  v1::SetResponse response;
  const grpc::Status status = stub_->Set(&context, request, &response);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED &&
      !status.error_message().empty() && agreed_) {
    return FromGrpc(status);
  }
  RETURN_IF_ERROR(Explain(status));
  return response.change();
}

absl::Status CoordinatorCalls::CloseRun(const std::string& member_id,
                                        const std::string& secret,
                                        const std::string& status,
                                        absl::Duration timeout) {
  grpc::ClientContext context;
  SetDeadline(timeout, &context);
  ShowSecret(member_id, secret, &context);
  v1::CloseRunRequest request;
  request.set_member_id(member_id);
  request.set_status(status);
  v1::CloseRunResponse response;
  return Explain(stub_->CloseRun(&context, request, &response));
}

absl::Status CoordinatorCalls::Explain(const grpc::Status& status) {
  const bool agreed = agreed_;
  if (status.ok()) agreed_ = true;
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return absl::OkStatus();
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED: {
      const absl::Status silent = absl::UnavailableError(
          absl::StrCat("no coordinator answers at ", address_,
                       "; is the run still going, and is the address right?"));
      return agreed ? silent : Explained(silent);
    }
    case grpc::StatusCode::UNIMPLEMENTED:
      return absl::FailedPreconditionError(absl::StrCat(
          "what answers at ", address_, " is no Flotilla coordinator"));
    default:
      return Explained(FromGrpc(status));
  }
}

absl::Status CoordinatorCalls::Explained(const absl::Status& status) const {
  return ExplainRefusal(status, "the coordinator", address_, credentials_);
}

bool SomethingListens(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == address.npos) return false;
  std::string host = address.substr(0, colon);
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) !=
      0) {
    return false;
  }
  bool listens = false;
  for (const addrinfo* at = found; at != nullptr && !listens;
       at = at->ai_next) {
    listens = Connects(*at);
  }
  freeaddrinfo(found);
  return listens;
}

}  // namespace flotilla
