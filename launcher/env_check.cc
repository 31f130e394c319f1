#include "launcher/env_check.h"

#include <chrono>

#include "absl/time/clock.h"
#include "flotilla/v1/env.grpc.pb.h"
#include "launcher/local_env_server.h"
#include "services/base/status_macros.h"
#include "services/rpc/channel.h"
#include "services/rpc/grpc_status.h"

namespace flotilla {

absl::StatusOr<v1::GetSpecResponse> AskEnvServer(const std::string& env_id,
                                                 const v1::EnvOptions& options,
                                                 absl::Duration timeout,
                                                 std::stop_token stop) {
  const absl::Time deadline = absl::Now() + timeout;
  ASSIGN_OR_RETURN(const auto server, LocalEnvServer::Start({}, timeout, stop));
  ASSIGN_OR_RETURN(const auto channel, MakeChannel(server->address(), {}));
  const auto stub = v1::EnvService::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoMilliseconds(deadline - absl::Now()));
  context.set_wait_for_ready(true);
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  v1::GetSpecRequest request;
  request.set_env_id(env_id);
  *request.mutable_options() = options;
  v1::GetSpecResponse response;
  RETURN_IF_ERROR(FromGrpc(stub->GetSpec(&context, request, &response)));
  return response;
}

}  // namespace flotilla
