#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "launcher/commands/command.h"
#include "launcher/programs.h"
#include "launcher/supervisor.h"
#include "services/base/cores.h"
#include "services/base/lifeline.h"
#include "services/base/shutdown.h"
#include "services/base/status_macros.h"
#include "services/rpc/credential_flags.h"

namespace flotilla {
namespace {

struct ServeFlags {
  std::optional<std::string> listen;
  std::optional<std::string> coordinator;
  std::optional<int> workers;
  std::optional<int> num_envs;
  std::optional<int> threads;
  std::optional<int> retry_wait_ms;
  bool renew_failed = false;
  RpcCredentials credentials;
};

// Worker i's address: the port after the one before, any free port for 0, a
// suffix for a unix socket.
absl::StatusOr<std::string> AddressOf(const std::string& listen, int worker) {
  if (worker == 0) return listen;
  if (absl::StartsWith(listen, "unix"))
    return absl::StrCat(listen, ".", worker);
  const size_t colon = listen.rfind(':');
  int port = 0;
  if (colon == listen.npos ||
      !absl::SimpleAtoi(listen.substr(colon + 1), &port)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen is \"", listen, "\"; expected HOST:PORT or unix:PATH"));
  }
  if (port == 0) return listen;
  return absl::StrCat(listen.substr(0, colon + 1), port + worker);
}

absl::StatusOr<std::vector<SubprocessOptions>> MakeServers(
    const ServeFlags& flags) {
  ASSIGN_OR_RETURN(const std::string program,
                   FindProgram("flotilla-envserver"));
  const int workers = flags.workers.value_or(1);
  int threads = flags.threads.value_or(0);
  if (threads == 0) threads = CoresToFill(/*sharers=*/workers);
  std::vector<SubprocessOptions> servers;
  for (int i = 0; i < workers; ++i) {
    SubprocessOptions server;
    server.argv = {program, absl::StrCat("--threads=", threads)};
    if (flags.listen) {
      ASSIGN_OR_RETURN(const std::string address, AddressOf(*flags.listen, i));
      server.argv.push_back("--listen=" + address);
    }
    if (flags.coordinator) {
      server.argv.push_back("--coordinator=" + *flags.coordinator);
    }
    if (flags.num_envs) {
      server.argv.push_back(absl::StrCat("--num_envs=", *flags.num_envs));
    }
    if (flags.retry_wait_ms) {
      server.argv.push_back(
          absl::StrCat("--retry-wait-ms=", *flags.retry_wait_ms));
    }
    if (flags.renew_failed) server.argv.push_back("--renew-failed");
    for (const std::string& flag : CredentialFlags(flags.credentials)) {
      server.argv.push_back(flag);
    }
    servers.push_back(server);
  }
  return servers;
}

}  // namespace

int RunServeEnvs(const Arguments& arguments) {
  ServeFlags flags;
  CommandLine line(
      "flotilla serve-envs (--listen ADDR | --coordinator HOST:PORT) [flags]",
      "Serves environments to learners of other processes and hosts, until "
      "Ctrl-C. Learners\nfind them through their run's coordinator, or are "
      "told "
      "an address (env.server).");
  line.Text("--listen", "ADDR",
            "HOST:PORT or unix:PATH; alone: for env.server, and clients of "
            "your own",
            &flags.listen);
  line.Text("--coordinator", "HOST:PORT",
            "offer them to this run, which assigns them", &flags.coordinator);
  line.Int("--workers", "N", 1, "server processes (default 1)", &flags.workers);
  line.Int("--num-envs", "N", 1,
           "most environments that each offers (default 4096)",
           &flags.num_envs);
  line.Int("--threads", "N", 0,
           "stepping threads of each; 0: its share of the cores, within a CPU "
           "quota",
           &flags.threads);
  line.Int("--retry-wait-ms", "N", 0,
           "how long an environment that failed is left alone (default 100)",
           &flags.retry_wait_ms);
  line.Switch("--renew-failed",
              "make an environment that failed anew, instead of a reset",
              &flags.renew_failed);
  AddCredentialFlags(&flags.credentials, &line);
  const ParsedLine parsed = ParseLine("serve-envs", arguments, 0, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  if (!flags.listen && !flags.coordinator) {
    return ReportUsage("serve-envs",
                       absl::InvalidArgumentError(
                           "needs --listen ADDR or --coordinator HOST:PORT"));
  }
  const auto servers = MakeServers(flags);
  if (!servers.ok()) return Report("serve-envs", servers.status());
  if (!flags.coordinator) {
    std::fprintf(stderr,
                 "flotilla serve-envs: no learner finds these by itself: name "
                 "one with env.server,\nor offer them to a run (--coordinator "
                 "HOST:PORT).\n");
  }
  const auto signals = ShutdownSignals::Install();
  if (!signals.ok()) return Report("serve-envs", signals.status());
  ObeyParentOnly();

  SupervisorOptions options;
  options.num_learners = static_cast<int>(servers->size());
  options.command = [&](const LearnerStart& start) {
    SubprocessOptions server = (*servers)[start.index];
    server.argv.push_back(absl::StrCat("--restarts=", start.restarts));
    return server;
  };
  options.name = [](int i) { return absl::StrCat("env server ", i); };
  options.log_path = [](int) { return std::string(); };
  options.error_path = [](int) { return std::string(); };
  options.save_and_stop = absl::Seconds(10);
  options.stop_signal = [&] { return (*signals)->first_signal(); };
  options.stop_now = [&] { return (*signals)->StopNow().stop_requested(); };
  options.notice = [](const std::string& text) {
    std::fprintf(stderr, "flotilla serve-envs: %s\n", text.c_str());
  };
  const SupervisorResult result = Supervisor(options).Run();
  if (!result.failure.empty()) {
    Report("serve-envs", absl::UnavailableError(result.failure));
  }
  return result.exit_code;
}

}  // namespace flotilla
