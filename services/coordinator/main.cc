#include <glog/logging.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <optional>

#include "services/base/command_line.h"
#include "services/base/descriptors.h"
#include "services/base/lifeline.h"
#include "services/base/shutdown.h"
#include "services/coordinator/run_coordinator.h"
#include "services/rpc/credential_flags.h"

namespace flotilla {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

// What the flags say, in `options`; the exit code if the program is to end.
std::optional<int> OptionsFromFlags(int argc, char** argv,
                                    RunCoordinatorOptions* options) {
  RosterOptions& roster = options->service.roster;
  int max_learners = 0;
  double heartbeat = 1, dead_after = 5, last_call = 30;
  CommandLine line("flotilla-coordinator [flags]",
                   "Decides who is in a run and numbers its generations. "
                   "Serves\nflotilla.v1.CoordinatorService.");
  line.Text("--listen", "ADDRESS",
            "HOST:PORT (port 0: any free one) or unix:PATH; by default "
            "127.0.0.1:29400, or a free port if that is taken",
            &options->listen);
  line.Text("--address-file", "FILE", "gets the address it listens on",
            &options->address_file);
  line.Text("--run-id", "NAME", "the run; learners of another are refused",
            &roster.run_id);
  line.Int("--min-learners", "N", 1,
           "fewest learners of a generation (default 1)", &roster.min_learners);
  line.Int("--max-learners", "N", 0,
           "most learners of a generation (default: as many as the fewest)",
           &max_learners);
  line.Text("--journal", "FILE", "lets a restarted coordinator carry on",
            &options->service.journal);
  line.Number("--heartbeat-seconds", "S",
              "between two heartbeats of a member (default 1)", &heartbeat);
  line.Number("--dead-after-seconds", "S",
              "silence after which a member is dead (default 5)", &dead_after);
  line.Number("--last-call-seconds", "S",
              "how long an elastic generation waits for more learners "
              "(default 30)",
              &last_call);
  AddCredentialFlags(&options->credentials, &line);
  std::string run_token;
  line.Text("--run-token", "FILE",
            "a token, made if there is none, for what changes the run; looking "
            "on stays open. For loopback",
            &run_token);
  line.Text("--metrics-listen", "ADDRESS",
            "serves /metrics there for Prometheus: HOST:PORT or unix:PATH; "
            "https where TLS is given (default: nowhere)",
            &options->metrics_listen);
  line.Text("--metrics-token-file", "FILE",
            "a token that Prometheus has to show (credentials_file)",
            &options->metrics_token_file);
  line.Text("--metrics-address-file", "FILE",
            "gets the address of --metrics-listen",
            &options->metrics_address_file);
  auto exit_code = ParseFlags("flotilla-coordinator", argc, argv, &line);
  if (!exit_code && !run_token.empty() &&
      !options->credentials.token_file.empty()) {
    std::cerr << "flotilla-coordinator: give --run-token or --token-file, not "
                 "both\n";
    exit_code = kUsage;
  }
  if (!run_token.empty()) {
    options->credentials.token_file = run_token;
    options->credentials.open_reading = true;
  }
  roster.max_learners = max_learners == 0 ? roster.min_learners : max_learners;
  roster.heartbeat = absl::Seconds(heartbeat);
  roster.dead_after = absl::Seconds(dead_after);
  roster.last_call = absl::Seconds(last_call);
  return exit_code;
}

int Main(int argc, char** argv) {
  StartLifelineWatch();
  RunCoordinatorOptions options;
  if (const auto exit_code = OptionsFromFlags(argc, argv, &options)) {
    return *exit_code;
  }
  RaiseDescriptorLimit();
  if (std::getenv("GLOG_logtostderr") == nullptr) FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);

  auto signals = ShutdownSignals::Install();
  if (!signals.ok()) {
    std::cerr << "flotilla-coordinator: " << signals.status().message() << "\n";
    return kFailed;
  }
  ObeyParentOnly();
  // A second Ctrl-C ends at once.
  std::stop_callback at_once((*signals)->StopNow(), [] { _exit(130); });
  const absl::Status status = RunCoordinator(options, (*signals)->Stop());
  if (status.ok()) return 0;
  std::cerr << "flotilla-coordinator: " << status.message() << "\n";
  return absl::IsInvalidArgument(status) ? kUsage : kFailed;
}

}  // namespace
}  // namespace flotilla

int main(int argc, char** argv) { return flotilla::Main(argc, argv); }
