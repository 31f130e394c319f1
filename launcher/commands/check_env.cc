#include <grpcpp/client_context.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "flotilla/v1/env.grpc.pb.h"
#include "launcher/commands/command.h"
#include "launcher/programs.h"
#include "services/base/config.h"
#include "services/base/config_rules.h"
#include "services/base/scratch_folder.h"
#include "services/base/status_macros.h"
#include "services/base/text_file.h"
#include "services/env/conformance/conformance.h"
#include "services/env/env_program.h"
#include "services/rpc/channel.h"
#include "services/rpc/credential_flags.h"
#include "services/rpc/grpc_status.h"
#include "services/rpc/refusal.h"

namespace flotilla {
namespace {

constexpr absl::Duration kServerTimeout = absl::Seconds(60);
constexpr char kOptionsPrefix[] = "env.options.";

struct CheckFlags {
  std::string target;  // ID or ADDRESS
  std::optional<std::string> env;
  std::vector<std::string> overrides;
  std::optional<int> timeout_seconds, hello_limit, num_envs, steps;
  RpcCredentials credentials;
  bool json = false;

  absl::Duration timeout() const {
    return absl::Seconds(timeout_seconds.value_or(10));
  }
};

// "unix:PATH" or HOST:PORT; an id has no port.
bool IsAddress(const std::string& target) {
  if (absl::StartsWith(target, "unix:") ||
      absl::StartsWith(target, "unix-abstract:")) {
    return true;
  }
  const size_t colon = target.rfind(':');
  if (colon == target.npos || colon == 0 || colon + 1 == target.size()) {
    return false;
  }
  return std::all_of(target.begin() + static_cast<ptrdiff_t>(colon) + 1,
                     target.end(),
                     [](char c) { return absl::ascii_isdigit(c); });
}

absl::StatusOr<v1::EnvOptions> ParseOptions(
    const std::vector<std::string>& overrides) {
  v1::RunConfig config;
  for (const std::string& text : overrides) {
    if (!absl::StartsWith(text, kOptionsPrefix)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--set ", text, ": only ", kOptionsPrefix, "* reach an environment"));
    }
    RETURN_IF_ERROR(ApplyOverride(text, &config));
  }
  return config.env().options();
}

absl::StatusOr<v1::GetSpecResponse> Ask(
    const std::shared_ptr<grpc::Channel>& channel,
    const v1::GetSpecRequest& request, absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoMilliseconds(timeout));
  context.set_wait_for_ready(true);
  v1::GetSpecResponse response;
  RETURN_IF_ERROR(FromGrpc(
      v1::EnvService::NewStub(channel)->GetSpec(&context, request, &response)));
  return response;
}

// The only environment that a server hosts.
absl::StatusOr<std::string> FindId(const CheckFlags& flags,
                                   const ConformanceOptions& options) {
  const auto known =
      Ask(options.channel, v1::GetSpecRequest(), options.timeout);
  if (!known.ok()) {
    const absl::Status why = ExplainRefusal(known.status(), "the env server",
                                            flags.target, flags.credentials);
    return absl::Status(
        why.code(),
        absl::StrCat("the env server at ", flags.target,
                     " does not say what it hosts: ",
                     std::string(why.message()), "; name it with --env ID"));
  }
  if (known->env_id_size() == 1) return known->env_id(0);
  const int some = std::min(known->env_id_size(), 8);
  return absl::InvalidArgumentError(absl::StrCat(
      "the server at ", flags.target, " hosts ", known->env_id_size(),
      " environments; name one with --env ID", some == 0 ? "" : ": ",
      absl::StrJoin(known->env_id().begin(), known->env_id().begin() + some,
                    ", "),
      some < known->env_id_size() ? ", ..." : ""));
}

int Finish(const CheckFlags& flags, const ConformanceOptions& options) {
  const Findings findings = CheckConformance(options);
  std::printf("%s", flags.json ? FindingsJson(findings).c_str()
                               : FindingsText(findings).c_str());
  return findings.failed() ? kExitFailed : kExitDone;
}

// A server that runs already.
int CheckRunning(const CheckFlags& flags, ConformanceOptions options) {
  const auto channel = MakeChannel(flags.target, flags.credentials);
  if (!channel.ok()) return Report("check-env", channel.status());
  options.channel = *channel;
  if (!AwaitConnected(channel->get(), options.timeout)) {
    return Report(
        "check-env",
        ExplainRefusal(absl::UnavailableError(absl::StrCat(
                           "no env server answers at ", flags.target,
                           " within ", absl::FormatDuration(options.timeout))),
                       "the env server", flags.target, flags.credentials));
  }
  if (flags.env) {
    options.env_id = *flags.env;
  } else {
    const auto id = FindId(flags, options);
    if (!id.ok()) return Report("check-env", id.status());
    options.env_id = *id;
  }
  return Finish(flags, options);
}

// One of ours, which is started for this alone.
int CheckOurs(const CheckFlags& flags, ConformanceOptions options) {
  options.env_id = flags.target;
  const ScratchFolder scratch;
  if (!scratch.status().ok()) return Report("check-env", scratch.status());
  const auto path = FindProgram("flotilla-envserver");
  if (!path.ok()) return Report("check-env", path.status());
  const EnvProgramOptions program{.command = {*path},
                                  .called = "flotilla-envserver",
                                  .foreign = false,
                                  .env_id = options.env_id,
                                  .socket = scratch.path() + "/socket",
                                  .log_path = scratch.path() + "/log",
                                  .keeps_log = false};
  const auto server = StartEnvProgram(program, kServerTimeout, {});
  if (!server.ok()) return Report("check-env", server.status());
  const auto channel = MakeChannel(server->address, {});
  if (!channel.ok()) return Report("check-env", channel.status());
  options.channel = *channel;
  // A wrong id or option is the user's, not the server's.
  v1::GetSpecRequest request;
  request.set_env_id(options.env_id);
  *request.mutable_options() = options.options;
  const auto known = Ask(*channel, request, kServerTimeout);
  if (!known.ok()) return Report("check-env", known.status());
  // Python, as a worker, obeys its parent's lifeline and no signal.
  if (!IsGym(options.env_id)) {
    options.shut_down = [&] { server->process->Signal(SIGTERM); };
  }
  const int code = Finish(flags, options);
  if (const auto exit = server->process->Poll(); code != kExitDone && exit) {
    std::fprintf(stderr, "flotilla check-env: the server ended with %s: %s\n",
                 exit->ToString().c_str(), LastLine(program.log_path).c_str());
  }
  return code;
}

}  // namespace

int RunCheckEnv(const Arguments& arguments) {
  CheckFlags flags;
  CommandLine line(
      "flotilla check-env ID|ADDRESS [flags]",
      "Plays an env server and says of every sentence of "
      "proto/flotilla/v1/env.proto\nwhether it keeps it: an environment of "
      "ours (CartPole-v1, gym:ID, ALE/Pong-v5),\nor a server that runs "
      "already, in any language (unix:PATH, HOST:PORT).\n\n"
      "  flotilla check-env CartPole-v1\n"
      "  flotilla check-env unix:/tmp/env.sock --env MyEnv\n\n"
      "Exits with 0 only if no sentence failed.");
  line.Text("--env", "ID", "which environment of ADDRESS, if it hosts several",
            &flags.env);
  line.List("--set", "env.options.NAME=VALUE",
            "an option of the environment, as `flotilla train` takes it",
            &flags.overrides);
  line.Int("--timeout", "SECONDS", 1,
           "how long each answer may take (default 10)",
           &flags.timeout_seconds);
  line.Int("--num-envs", "N", 2, "environments on a stream, even (default 4)",
           &flags.num_envs);
  line.Int("--steps", "N", 2,
           "steps of each stream that is compared with "
           "others (default 64)",
           &flags.steps);
  line.Int("--hello-limit", "SECONDS", 1,
           "also wait for the server to give up on a stream without a hello, "
           "which it does after this long (ours: 10)",
           &flags.hello_limit);
  line.Switch("--json", "one JSON object", &flags.json);
  AddCredentialFlags(&flags.credentials, &line);
  const ParsedLine parsed = ParseLine("check-env", arguments, 1, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  const auto usage = [](const std::string& words) {
    return ReportUsage("check-env", absl::InvalidArgumentError(words));
  };
  if (parsed.positional.empty()) {
    return usage("needs an environment's ID, or the ADDRESS of a server");
  }
  flags.target = parsed.positional[0];
  if (absl::StartsWith(flags.target, "exec:")) {
    return usage(absl::StrCat("\"", flags.target,
                              "\" is a program: start it with --listen "
                              "unix:PATH, and name unix:PATH here"));
  }
  ConformanceOptions options;
  options.timeout = flags.timeout();
  options.hello_limit = absl::Seconds(flags.hello_limit.value_or(0));
  options.num_envs = flags.num_envs.value_or(options.num_envs);
  options.steps = flags.steps.value_or(options.steps);
  if (options.num_envs % 2 != 0) {
    return usage(absl::StrCat("--num-envs is ", options.num_envs,
                              ", want an even number"));
  }
  const auto parsed_options = ParseOptions(flags.overrides);
  if (!parsed_options.ok())
    return ReportUsage("check-env", parsed_options.status());
  options.options = *parsed_options;
  if (IsAddress(flags.target)) return CheckRunning(flags, options);
  if (flags.env) {
    return usage(absl::StrCat("--env goes with an ADDRESS, and \"",
                              flags.target,
                              "\" is none (unix:PATH, "
                              "HOST:PORT)"));
  }
  return CheckOurs(flags, options);
}

}  // namespace flotilla
