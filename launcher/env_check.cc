#include "launcher/env_check.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "flotilla/v1/env.grpc.pb.h"
#include "launcher/programs.h"
#include "services/base/env_origin.h"
#include "services/base/printable.h"
#include "services/base/scratch_folder.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"
#include "services/env/env_program.h"
#include "services/rpc/channel.h"
#include "services/rpc/grpc_status.h"

namespace flotilla {
namespace {

// One that runs already answers soon, or does not run.
constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
constexpr absl::Duration kEndPoll = absl::Milliseconds(5);

absl::StatusOr<v1::GetSpecResponse> Ask(
    const std::shared_ptr<grpc::Channel>& channel, const v1::EnvConfig& env,
    absl::Time deadline, std::stop_token stop, Subprocess* program) {
  const auto stub = v1::EnvService::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoMilliseconds(deadline - SteadyNow()));
  context.set_wait_for_ready(true);
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  // A program that has ended would be waited for.
  std::jthread watch;
  if (program != nullptr) {
    watch = std::jthread([&](std::stop_token answered) {
      while (!answered.stop_requested()) {
        if (program->Wait(kEndPoll)) return context.TryCancel();
      }
    });
  }
  v1::GetSpecRequest request;
  request.set_env_id(env.id());
  *request.mutable_options() = env.options();
  v1::GetSpecResponse response;
  absl::Status status = FromGrpc(stub->GetSpec(&context, request, &response));
  if (status.ok()) return response;
  if (stop.stop_requested()) return absl::CancelledError("told to stop");
  std::string why = PrintableLine(status.message(), 2048);
  if (program != nullptr) {
    if (const auto exit = program->Wait(kEndPoll)) {
      status = absl::UnavailableError("");
      why = absl::StrCat("it has ended (", exit->ToString(), ")");
    }
  }
  if (absl::IsUnimplemented(status)) {
    absl::StrAppend(&why, " (GetSpec, of flotilla.v1.EnvService)");
  }
  return absl::Status(status.code(), why);
}

// `status` of a call to the server that `env` names.
absl::Status Named(const v1::EnvConfig& env, const absl::Status& status) {
  if (absl::IsCancelled(status)) return status;
  return absl::Status(status.code(), absl::StrCat("env.server \"", env.server(),
                                                  "\": ", status.message()));
}

absl::StatusOr<v1::GetSpecResponse> AskRunning(
    const std::string& address, const v1::EnvConfig& env,
    const RpcCredentials& credentials, absl::Time deadline,
    std::stop_token stop) {
  ASSIGN_OR_RETURN(const auto channel, MakeChannel(address, credentials));
  const absl::Time until = std::min(deadline, SteadyNow() + kConnectTimeout);
  while (!AwaitConnected(channel.get(), absl::Milliseconds(100))) {
    if (stop.stop_requested()) return absl::CancelledError("told to stop");
    if (SteadyNow() < until) continue;
    return absl::UnavailableError(absl::StrCat(
        "env.server is \"", env.server(), "\", but nobody serves there",
        credentials.uses_tls() ? " with this run's certificates" : "",
        "; start the server first, or have each worker start one: "
        "env.server=exec:COMMAND"));
  }
  auto response = Ask(channel, env, deadline, std::move(stop), nullptr);
  if (!response.ok()) return Named(env, response.status());
  return response;
}

absl::StatusOr<v1::GetSpecResponse> AskProgram(const EnvOrigin& origin,
                                               const v1::EnvConfig& env,
                                               absl::Time deadline,
                                               std::stop_token stop) {
  const ScratchFolder scratch;
  RETURN_IF_ERROR(scratch.status());
  EnvProgramOptions options;
  options.foreign = origin.kind == EnvOrigin::Kind::kProgram;
  options.socket = scratch.path() + "/socket";
  options.log_path = scratch.path() + "/log";
  options.keeps_log = false;
  if (options.foreign) {
    options.called = absl::StrCat("env.server \"", env.server(), "\"");
    options.command = origin.command;
    options.env_id = env.id();
  } else {
    // Not told which: it would be the Python server for a gym: one.
    options.called = "flotilla-envserver";
    ASSIGN_OR_RETURN(options.command.emplace_back(),
                     FindProgram("flotilla-envserver"));
  }
  ASSIGN_OR_RETURN(const EnvProgram program,
                   StartEnvProgram(options, deadline - SteadyNow(), stop));
  ASSIGN_OR_RETURN(const auto channel, MakeChannel(program.address, {}));
  auto response = Ask(channel, env, deadline, std::move(stop),
                      options.foreign ? program.process.get() : nullptr);
  if (options.foreign && !response.ok()) return Named(env, response.status());
  return response;
}

}  // namespace

absl::StatusOr<v1::GetSpecResponse> AskEnvServer(
    const v1::EnvConfig& env, const RpcCredentials& credentials,
    absl::Duration timeout, std::stop_token stop) {
  const absl::Time deadline = SteadyNow() + timeout;
  auto origin = ParseEnvOrigin(env.server());
  if (!origin.ok()) {
    return absl::Status(origin.status().code(),
                        absl::StrCat("env.server ", origin.status().message()));
  }
  return origin->kind == EnvOrigin::Kind::kRunning
             ? AskRunning(origin->address, env, credentials, deadline,
                          std::move(stop))
             : AskProgram(*origin, env, deadline, std::move(stop));
}

absl::StatusOr<v1::GetSpecResponse> AskEnvServer(const std::string& env_id,
                                                 const v1::EnvOptions& options,
                                                 absl::Duration timeout,
                                                 std::stop_token stop) {
  v1::EnvConfig env;
  env.set_id(env_id);
  *env.mutable_options() = options;
  return AskEnvServer(env, RpcCredentials(), timeout, std::move(stop));
}

}  // namespace flotilla
