#include <grpcpp/client_context.h>

#include <chrono>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "launcher/commands/command.h"
#include "services/base/status_macros.h"
#include "services/rpc/channel.h"
#include "services/rpc/credential_flags.h"
#include "services/rpc/grpc_status.h"
#include "services/rpc/refusal.h"

namespace flotilla {
namespace {

using grpc::health::v1::HealthCheckResponse;

absl::Status CheckHealth(const std::string& address, const std::string& service,
                         int timeout_seconds,
                         const RpcCredentials& credentials) {
  ASSIGN_OR_RETURN(const auto channel, MakeChannel(address, credentials));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(timeout_seconds));
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  HealthCheckResponse response;
  RETURN_IF_ERROR(
      ExplainRefusal(FromGrpc(grpc::health::v1::Health::NewStub(channel)->Check(
                         &context, request, &response)),
                     "the server", address, credentials));
  if (response.status() == HealthCheckResponse::SERVING) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat(address, " is ",
                   HealthCheckResponse::ServingStatus_Name(response.status())));
}

}  // namespace

int RunHealth(const Arguments& arguments) {
  std::optional<std::string> named;
  std::optional<int> timeout_seconds;
  RpcCredentials credentials;
  CommandLine line(
      "flotilla health ADDRESS [flags]",
      "Asks a coordinator or env server for its health (grpc.health.v1): 0 if "
      "it\nserves, else 1. For probes: a gRPC probe of Kubernetes shows "
      "neither "
      "a\ncertificate nor a token.");
  line.Text("--service", "NAME", "one of its services (default: all of it)",
            &named);
  line.Int("--timeout", "SECONDS", 1, "give up after (default 5)",
           &timeout_seconds);
  AddCredentialFlags(&credentials, &line);
  const ParsedLine parsed = ParseLine("health", arguments, 1, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  if (parsed.positional.empty()) {
    return ReportUsage("health", absl::InvalidArgumentError(
                                     "needs ADDRESS: HOST:PORT or unix:PATH"));
  }
  const absl::Status status =
      CheckHealth(parsed.positional[0], named.value_or(""),
                  timeout_seconds.value_or(5), credentials);
  if (!status.ok()) {
    Report("health", status);
    return kExitFailed;
  }
  std::printf("serving\n");
  return kExitDone;
}

}  // namespace flotilla
