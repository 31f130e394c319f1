#include "launcher/env_check.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "flotilla/v1/env.grpc.pb.h"
#include "launcher/programs.h"
#include "services/base/scratch_folder.h"
#include "services/base/status_macros.h"
#include "services/base/subprocess.h"
#include "services/base/text_file.h"
#include "services/rpc/channel.h"
#include "services/rpc/grpc_status.h"

namespace flotilla {

absl::StatusOr<v1::GetSpecResponse> AskEnvServer(const std::string& env_id,
                                                 const v1::EnvOptions& options,
                                                 absl::Duration timeout,
                                                 std::stop_token stop) {
  const absl::Time deadline = absl::Now() + timeout;
  const ScratchFolder scratch;
  RETURN_IF_ERROR(scratch.status());
  const std::string address = absl::StrCat("unix:", scratch.path(), "/socket");
  const std::string ready = scratch.path() + "/address";
  SubprocessOptions program;
  ASSIGN_OR_RETURN(const std::string path, FindProgram("flotilla-envserver"));
  program.argv = {path, "--listen=" + address, "--address_file=" + ready};
  program.log_path = scratch.path() + "/log";
  ASSIGN_OR_RETURN(const std::unique_ptr<Subprocess> server,
                   Subprocess::Start(program));
  const absl::Status started =
      server->AwaitFile(ready, deadline - absl::Now(), stop);
  if (absl::IsCancelled(started)) return started;
  if (!started.ok()) {
    return absl::Status(started.code(),
                        absl::StrCat("flotilla-envserver ", started.message(),
                                     ": ", LastLine(program.log_path)));
  }

  ASSIGN_OR_RETURN(const auto channel, MakeChannel(address, {}));
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
