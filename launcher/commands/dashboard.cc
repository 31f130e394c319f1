#include <cstdio>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "launcher/commands/command.h"
#include "launcher/coordinator_calls.h"
#include "launcher/programs.h"
#include "launcher/python_program.h"
#include "launcher/run_comparison.h"
#include "services/base/status_macros.h"
#include "services/base/subprocess.h"
#include "services/rpc/credential_flags.h"

namespace flotilla {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(5);
constexpr char kDefaultListen[] = "127.0.0.1:29480";

struct HostPort {
  std::string host;  // without an IPv6 address's brackets
  int port = 0;
};

std::optional<HostPort> ParseHostPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  HostPort parsed;
  if (colon == address.npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &parsed.port) ||
      parsed.port < 0 || parsed.port > 65535) {
    return std::nullopt;
  }
  absl::string_view host(address.data(), colon);
  if (absl::ConsumePrefix(&host, "[") != absl::ConsumeSuffix(&host, "]")) {
    return std::nullopt;
  }
  parsed.host = std::string(host);
  return parsed;
}

absl::StatusOr<HostPort> WhereToListen(const std::string& listen,
                                       const RpcCredentials& credentials) {
  const auto parsed = ParseHostPort(listen);
  if (!parsed) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen is \"", listen, "\"; expected HOST:PORT"));
  }
  RETURN_IF_ERROR(CheckCredentials(credentials));
  if (!IsLocalAddress(listen) && !credentials.uses_token() &&
      !credentials.insecure) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen ", listen,
        " can be reached from other hosts; give --token-file, or --insecure on "
        "a network you trust"));
  }
  return *parsed;
}

// Runs in a folder, of one environment: what is wrong with their files is told.
absl::Status CheckFolders(const std::vector<std::string>& folders) {
  ASSIGN_OR_RETURN(const std::vector<RunRecord> runs,
                   ReadRunRecords(folders, absl::Now()));
  for (const RunRecord& run : runs) {
    for (const std::string& note : run.notes) {
      std::fprintf(stderr, "flotilla dashboard: %s\n", note.c_str());
    }
  }
  return CheckOneEnvironment(runs);
}

absl::StatusOr<std::vector<std::string>> MakeCommand(
    const std::vector<std::string>& named,
    const std::optional<std::string>& listen,
    const RpcCredentials& credentials) {
  ASSIGN_OR_RETURN(const HostPort at,
                   WhereToListen(listen.value_or(kDefaultListen), credentials));
  std::vector<std::string> arguments = {
      "dashboard", absl::StrCat("--flotilla=", ProgramFolder(), "/flotilla"),
      "--host=" + at.host, absl::StrCat("--port=", at.port)};
  if (!listen) arguments.push_back("--any-port");
  std::vector<std::string> folders;
  for (const std::string& name : named) {
    std::error_code error;
    if (!ParseHostPort(name) || std::filesystem::exists(name, error)) {
      folders.push_back(name);
      arguments.push_back("--folder=" + name);
      continue;
    }
    ASSIGN_OR_RETURN(const auto calls,
                     CoordinatorCalls::Make(name, credentials));
    RETURN_IF_ERROR(calls->GetStatus(kTimeout).status());
    arguments.push_back("--coordinator=" + name);
  }
  RETURN_IF_ERROR(CheckFolders(folders));
  for (const std::string& flag : CredentialFlags(credentials)) {
    arguments.push_back(flag);
  }
  return WatchCommand(arguments);
}

}  // namespace

int RunDashboard(const Arguments& arguments) {
  std::optional<std::string> listen;
  RpcCredentials credentials;
  CommandLine line(
      "flotilla dashboard [RUN|HOST:PORT...] [flags]",
      "Serves a page that shows runs while they train, until Ctrl-C: runs, "
      "folders of them\n(default: runs), or a run's coordinator. It needs "
      "python3 (or FLOTILLA_PYTHON) and\nnothing else. With a token it asks "
      "browsers for it; with --tls-cert it speaks https.");
  line.Text("--listen", "HOST:PORT",
            absl::StrCat("where to serve (default ", kDefaultListen,
                         ", or a free port where that is taken)"),
            &listen);
  AddCredentialFlags(&credentials, &line);
  const ParsedLine parsed =
      ParseLine("dashboard", arguments, arguments.size(), &line);
  if (parsed.exit_code) return *parsed.exit_code;
  const auto command =
      MakeCommand(parsed.positional.empty() ? std::vector<std::string>{"runs"}
                                            : parsed.positional,
                  listen, credentials);
  if (!command.ok()) return Report("dashboard", command.status());
  return Report("dashboard", Become(*command));
}

}  // namespace flotilla
