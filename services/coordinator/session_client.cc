#include "services/coordinator/session_client.h"

#include <utility>

#include "services/rpc/grpc_status.h"

namespace flotilla {

std::unique_ptr<SessionClient> SessionClient::Start(
    std::shared_ptr<v1::CoordinatorService::Stub> stub, Handlers handlers) {
  std::unique_ptr<SessionClient> session(
      new SessionClient(std::move(stub), std::move(handlers)));
  session->stub_->async()->Session(&session->context_, session.get());
  // Send comes from outside gRPC's reactions: without a hold the call could be
  // over in the middle of it.
  session->AddHold();
  session->StartRead(&session->command_);
  session->StartCall();
  return session;
}

SessionClient::~SessionClient() {
  Cancel();
  MutexLock lock(&mu_);
  while (!done_) lock.Wait(&done_changes_);
}

void SessionClient::Send(const v1::Heartbeat& heartbeat) {
  MutexLock lock(&mu_);
  next_ = heartbeat;
  Proceed();
}

void SessionClient::Proceed() {
  if (writing_ || over_ || !next_.has_value()) return;
  heartbeat_ = *std::exchange(next_, std::nullopt);
  writing_ = true;
  StartWrite(&heartbeat_);
}

void SessionClient::OnReadDone(bool ok) {
  if (ok) {
    handlers_.on_command(command_);
    StartRead(&command_);
    return;
  }
  {
    MutexLock lock(&mu_);
    over_ = true;
  }
  RemoveHold();
}

void SessionClient::OnWriteDone(bool ok) {
  MutexLock lock(&mu_);
  writing_ = false;
  if (ok) Proceed();  // if not, the read ends the call
}

void SessionClient::OnDone(const grpc::Status& status) {
  handlers_.on_over(FromGrpc(status));
  MutexLock lock(&mu_);
  done_ = true;
  done_changes_.notify_all();
}

}  // namespace flotilla
