#include <algorithm>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/commands/command.h"
#include "launcher/coordinator_calls.h"
#include "launcher/find_coordinator.h"
#include "launcher/progress.h"
#include "services/base/config_change.h"
#include "services/base/status_macros.h"
#include "services/rpc/credential_flags.h"

namespace flotilla {
namespace {

constexpr absl::Duration kSetTimeout = absl::Seconds(5);

absl::StatusOr<v1::Change> SetFields(const RunAddress& run,
                                     const std::vector<std::string>& overrides,
                                     absl::Duration timeout,
                                     CoordinatorCalls* calls) {
  const auto status = calls->GetStatus(kSetTimeout);
  if (!status.ok()) return ExplainSilence(run, status.status());
  RETURN_IF_ERROR(CheckSameRun(run, *status));
  return calls->Set(overrides, timeout);
}

}  // namespace

int RunSet(const Arguments& arguments) {
  std::optional<std::string> run_dir, coordinator;
  RpcCredentials credentials;
  int timeout = 60;
  CommandLine line(
      "flotilla set [RUN] PATH=VALUE... [flags]",
      "Changes fields of a run, the newest in runs/ if none is named, while it "
      "goes on: on\nall its learners from the same update on. `flotilla "
      "explain "
      "FIELD` says whether a\nfield can change so.");
  line.Text("--run-dir", "RUN", "the run's folder", &run_dir);
  line.Text("--coordinator", "HOST:PORT", "its coordinator", &coordinator);
  line.Int("--timeout", "SECONDS", 1,
           "how long to wait for the learners to agree (default 60)", &timeout);
  AddCredentialFlags(&credentials, &line);
  const ParsedLine parsed = ParseLine("set", arguments, 100, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  std::vector<std::string> overrides = parsed.positional;
  if (!overrides.empty() && !absl::StrContains(overrides[0], "=")) {
    run_dir = overrides[0];
    overrides.erase(overrides.begin());
  }
  const absl::Status fits = CheckChange(overrides);
  if (!fits.ok()) return Report("set", fits);

  const auto run = FindCoordinator(coordinator, run_dir);
  if (!run.ok()) return Report("set", run.status());
  const auto calls = CoordinatorCalls::Make(
      run->address, WithRunToken(credentials, run->run_dir));
  if (!calls.ok()) return Report("set", calls.status());
  const auto change =
      SetFields(*run, overrides, absl::Seconds(timeout), calls->get());
  if (!change.ok()) return Report("set", change.status());
  std::printf("%s\n", ChangeLine(*change).c_str());
  return kExitDone;
}

}  // namespace flotilla
