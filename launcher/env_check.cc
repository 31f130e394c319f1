#include "launcher/env_check.h"

#include <chrono>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "flotilla/v1/env.grpc.pb.h"
#include "launcher/programs.h"
#include "services/base/scratch_folder.h"
#include "services/base/status_macros.h"
#include "services/base/subprocess.h"
#include "services/rpc/channel.h"
#include "services/rpc/grpc_status.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

absl::Status AwaitFile(const std::string& path, Subprocess* server,
                       const std::string& log, absl::Time deadline) {
  while (absl::Now() < deadline) {
    std::error_code error;
    if (fs::exists(path, error)) return absl::OkStatus();
    if (const auto exit = server->Wait(absl::Milliseconds(5))) {
      return absl::UnavailableError(
          absl::StrCat("flotilla-envserver could not start (", exit->ToString(),
                       "): ", LastLine(log)));
    }
  }
  return absl::DeadlineExceededError("flotilla-envserver does not start");
}

}  // namespace

absl::StatusOr<v1::GetSpecResponse> AskEnvServer(const std::string& env_id,
                                                 const v1::EnvOptions& options,
                                                 absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  const ScratchFolder scratch;
  if (scratch.path().empty()) {
    return absl::UnavailableError(absl::StrCat(
        "cannot make a folder in ", fs::temp_directory_path().string()));
  }
  const std::string address = absl::StrCat("unix:", scratch.path(), "/socket");
  const std::string ready = scratch.path() + "/address";
  SubprocessOptions program;
  ASSIGN_OR_RETURN(const std::string path, FindProgram("flotilla-envserver"));
  program.argv = {path, "--listen=" + address, "--address_file=" + ready};
  program.log_path = scratch.path() + "/log";
  ASSIGN_OR_RETURN(const std::unique_ptr<Subprocess> server,
                   Subprocess::Start(program));
  RETURN_IF_ERROR(AwaitFile(ready, server.get(), program.log_path, deadline));

  ASSIGN_OR_RETURN(const auto channel, MakeChannel(address, {}));
  const auto stub = v1::EnvService::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoMilliseconds(deadline - absl::Now()));
  context.set_wait_for_ready(true);
  v1::GetSpecRequest request;
  request.set_env_id(env_id);
  *request.mutable_options() = options;
  v1::GetSpecResponse response;
  RETURN_IF_ERROR(FromGrpc(stub->GetSpec(&context, request, &response)));
  return response;
}

}  // namespace flotilla
