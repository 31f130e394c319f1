#include <cstdio>

#include "launcher/commands/command.h"
#include "launcher/coordinator_calls.h"
#include "launcher/find_coordinator.h"
#include "services/base/status_macros.h"
#include "services/rpc/credential_flags.h"

namespace flotilla {
namespace {

constexpr absl::Duration kStopTimeout = absl::Seconds(5);

absl::Status StopRun(const RunAddress& run, const std::string& reason,
                     CoordinatorCalls* calls) {
  const auto status = calls->GetStatus(kStopTimeout);
  if (!status.ok()) return ExplainSilence(run, status.status());
  RETURN_IF_ERROR(CheckSameRun(run, *status));
  return calls->Stop(reason, kStopTimeout);
}

}  // namespace

int RunStop(const Arguments& arguments) {
  std::optional<std::string> run_dir, coordinator;
  RpcCredentials credentials;
  std::string reason = "flotilla stop";
  CommandLine line(
      "flotilla stop [RUN] [flags]",
      "Asks a run, the newest in runs/ if none is named, to save a "
      "checkpoint and finish.");
  line.Text("--run-dir", "RUN", "the run's folder", &run_dir);
  line.Text("--coordinator", "HOST:PORT", "its coordinator", &coordinator);
  line.Text("--reason", "TEXT", "what its status and logs will say", &reason);
  AddCredentialFlags(&credentials, &line);
  const ParsedLine parsed = ParseLine("stop", arguments, 1, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  if (!parsed.positional.empty()) run_dir = parsed.positional[0];

  const auto run = FindCoordinator(coordinator, run_dir);
  if (!run.ok()) return Report("stop", run.status());
  const auto calls = CoordinatorCalls::Make(
      run->address, WithRunToken(credentials, run->run_dir));
  if (!calls.ok()) return Report("stop", calls.status());
  const absl::Status stopped = StopRun(*run, reason, calls->get());
  if (!stopped.ok()) return Report("stop", stopped);
  std::printf("asked the run at %s to save and stop\n", run->address.c_str());
  return kExitDone;
}

}  // namespace flotilla
