#include "envserver/gym_server.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "services/base/python_program.h"
#include "services/base/status_macros.h"
#include "services/base/text_file.h"
#include "services/base/version.h"

namespace flotilla {
namespace {

constexpr absl::Duration kStartTimeout = absl::Minutes(2);
constexpr absl::Duration kEndTimeout = absl::Milliseconds(100);

}  // namespace

absl::StatusOr<std::vector<std::string>> GymServerCommand(
    const std::vector<std::string>& flags) {
  ASSIGN_OR_RETURN(std::vector<std::string> command,
                   PythonProgram("flotilla_gym", "gym: environments need",
                                 " that has gymnasium grpcio protobuf numpy"));
  command.push_back("--server_version=" + Version());
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

std::vector<std::string> GymServerOptions::Flags() const {
  return {
      absl::StrCat("--num_envs=", max_num_envs),
      absl::StrCat("--retry_wait_seconds=", absl::ToDoubleSeconds(retry_wait)),
      absl::StrCat("--renew_failed=", renew_failed ? 1 : 0)};
}

absl::StatusOr<std::unique_ptr<GymServer>> GymServer::Start(
    const GymServerOptions& options) {
  std::unique_ptr<GymServer> server(new GymServer);
  RETURN_IF_ERROR(server->folder_.status());
  const std::string& folder = server->folder_.path();
  server->address_ = absl::StrCat("unix:", folder, "/socket");
  const std::string ready = folder + "/address";
  const std::string error = folder + "/error";
  SubprocessOptions program;
  std::vector<std::string> flags = options.Flags();
  flags.insert(flags.end(),
               {"--listen=" + server->address_, "--address_file=" + ready,
                "--error_file=" + error});
  ASSIGN_OR_RETURN(program.argv, GymServerCommand(flags));
  ASSIGN_OR_RETURN(server->process_, Subprocess::Start(program));
  const absl::Status started =
      server->process_->AwaitFile(ready, kStartTimeout);
  if (started.ok()) return server;
  const std::string why = FirstLine(error);
  return absl::FailedPreconditionError(
      !why.empty() ? why
                   : absl::StrCat(program.argv[0], " ", started.message(),
                                  " and serves no gym: environments; the log "
                                  "says why"));
}

absl::Status GymServer::Explain(const absl::Status& status) {
  if (status.ok()) return status;
  std::string message(absl::StripPrefix(
      status.message(), absl::StrCat("env server ", address_, ": ")));
  if (const auto exit = process_->Wait(kEndTimeout)) {
    message = absl::StrCat("the Python server of the environment ended (",
                           exit->ToString(), "); ", message);
  }
  return absl::Status(status.code(), message);
}

}  // namespace flotilla
