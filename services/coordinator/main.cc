#include <glog/logging.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/descriptors.h"
#include "services/base/lifeline.h"
#include "services/base/shutdown.h"
#include "services/base/version.h"
#include "services/coordinator/run_coordinator.h"

ABSL_FLAG(std::string, listen, "",
          "Where to listen: HOST:PORT (port 0: any free one), unix:PATH. By "
          "default 127.0.0.1:29400, or a free port if that is taken");
ABSL_FLAG(std::string, address_file, "",
          "File that gets the address it listens on");
ABSL_FLAG(std::string, run_id, "", "The run; learners of another are refused");
ABSL_FLAG(int, min_learners, 1, "Fewest learners of a generation");
ABSL_FLAG(int, max_learners, 0,
          "Most learners of a generation; 0: as many as the fewest");
ABSL_FLAG(std::string, journal, "",
          "File that lets a restarted coordinator carry on");
ABSL_FLAG(double, heartbeat_seconds, 1, "Between two heartbeats of a member");
ABSL_FLAG(double, dead_after_seconds, 5,
          "Silence after which a member is dead");
ABSL_FLAG(double, last_call_seconds, 30,
          "How long an elastic generation waits for more learners");
ABSL_FLAG(std::string, tls_cert, "", "Certificate, PEM");
ABSL_FLAG(std::string, tls_key, "", "Its private key, PEM");
ABSL_FLAG(std::string, tls_ca, "", "Who signs everybody's certificates, PEM");
ABSL_FLAG(std::string, token_file, "", "File with the run's token");
ABSL_FLAG(bool, insecure, false,
          "Listen on an open address with neither TLS nor token");

namespace flotilla {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

// Abseil ends the process with 1 both after --help and on a wrong flag.
int g_exit_while_parsing = -1;

void ParseFlags(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "flotilla-coordinator: decides who is in a run and numbers its "
      "generations. Serves flotilla.v1.CoordinatorService.");
  absl::FlagsUsageConfig config;
  config.version_string = [] { return Version() + "\n"; };
  config.contains_help_flags = [](absl::string_view file) {
    return absl::StrContains(file, "coordinator/main.cc");
  };
  absl::SetFlagsUsageConfig(config);

  g_exit_while_parsing = kUsage;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (absl::StartsWith(argument, "--help") || argument == "--version") {
      g_exit_while_parsing = 0;
    }
  }
  std::atexit([] {
    if (g_exit_while_parsing < 0) return;
    std::cout.flush();
    std::fflush(nullptr);
    _exit(g_exit_while_parsing);
  });
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() > 1) {
    std::cerr << "flotilla-coordinator: what is \"" << rest[1]
              << "\"? It takes flags only; see --help\n";
    std::exit(kUsage);
  }
  g_exit_while_parsing = -1;
}

RunCoordinatorOptions OptionsFromFlags() {
  RunCoordinatorOptions options;
  options.listen = absl::GetFlag(FLAGS_listen);
  options.address_file = absl::GetFlag(FLAGS_address_file);
  options.service.journal = absl::GetFlag(FLAGS_journal);

  RosterOptions& roster = options.service.roster;
  roster.run_id = absl::GetFlag(FLAGS_run_id);
  roster.min_learners = absl::GetFlag(FLAGS_min_learners);
  const int max_learners = absl::GetFlag(FLAGS_max_learners);
  roster.max_learners = max_learners == 0 ? roster.min_learners : max_learners;
  roster.heartbeat = absl::Seconds(absl::GetFlag(FLAGS_heartbeat_seconds));
  roster.dead_after = absl::Seconds(absl::GetFlag(FLAGS_dead_after_seconds));
  roster.last_call = absl::Seconds(absl::GetFlag(FLAGS_last_call_seconds));

  RpcCredentials& credentials = options.credentials;
  credentials.tls_cert = absl::GetFlag(FLAGS_tls_cert);
  credentials.tls_key = absl::GetFlag(FLAGS_tls_key);
  credentials.tls_ca = absl::GetFlag(FLAGS_tls_ca);
  credentials.token_file = absl::GetFlag(FLAGS_token_file);
  credentials.insecure = absl::GetFlag(FLAGS_insecure);
  return options;
}

int Main(int argc, char** argv) {
  StartLifelineWatch();
  ParseFlags(argc, argv);
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
  const absl::Status status =
      RunCoordinator(OptionsFromFlags(), (*signals)->Stop());
  if (status.ok()) return 0;
  std::cerr << "flotilla-coordinator: " << status.message() << "\n";
  return absl::IsInvalidArgument(status) ? kUsage : kFailed;
}

}  // namespace
}  // namespace flotilla

int main(int argc, char** argv) { return flotilla::Main(argc, argv); }
