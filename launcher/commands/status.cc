#include <google/protobuf/util/json_util.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "launcher/commands/command.h"
#include "launcher/coordinator_calls.h"
#include "launcher/find_coordinator.h"
#include "launcher/progress.h"
#include "launcher/run_record.h"
#include "launcher/summary.h"
#include "launcher/text_layout.h"
#include "launcher/watch/terminal.h"
#include "launcher/watch/watch_screen.h"
#include "services/base/json.h"
#include "services/base/run_folder.h"
#include "services/base/run_summary.h"
#include "services/base/shutdown.h"
#include "services/base/steady_now.h"
#include "services/rpc/credential_flags.h"

namespace flotilla {
namespace {

constexpr absl::Duration kStatusTimeout = absl::Seconds(5);
constexpr absl::Duration kInterval = absl::Seconds(1);
// With a coordinator that has gone.
constexpr absl::Duration kPatience = absl::Seconds(10);

void Print(const v1::Status& status, bool json) {
  if (json) {
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    options.always_print_primitive_fields = true;
    std::string text;
    google::protobuf::util::MessageToJsonString(status, &text, options);
    std::printf("%s\n", text.c_str());
  } else {
    std::printf("%s", StatusText(status, TerminalWidth(stdout)).c_str());
  }
  std::fflush(stdout);
}

// A run that cannot be asked is over, if its folder says so; what it has of a result may
// be of before it went on. Of `json`, in one line if that `is_one_of_many`.
int ShowFinished(const RunAddress& run, const absl::Status& unreachable,
                 bool json, bool is_one_of_many) {
  const RunFolder folder(run.run_dir);
  const auto summary = run.run_dir.empty() || !HasResult(folder)
                           ? absl::NotFoundError("no result")
                           : ReadRunSummary(folder.summary());
  if (!summary.ok()) {
    return Report("status", ExplainSilence(run, unreachable));
  }
  if (json) {
    std::string text = FormatRunSummary(*summary);
    if (const auto parsed = ParseJson(text); is_one_of_many && parsed.ok()) {
      text = FormatJson(*parsed) + "\n";
    }
    std::printf("%s", text.c_str());
  } else {
    std::printf("the run in %s is over\n%s", run.run_dir.c_str(),
                DescribeSummary(*summary).c_str());
  }
  return kExitDone;
}

// On the whole screen.
int Watch(const RunAddress& run, const v1::Status& first,
          CoordinatorCalls* calls) {
  const auto signals = ShutdownSignals::Install();
  if (!signals.ok()) return Report("status", signals.status());
  const auto last = WatchOnScreen(run, first, calls, (*signals)->Stop());
  if (absl::IsUnavailable(last.status())) {
    return ShowFinished(run, last.status(), false, false);
  }
  if (!last.ok()) return Report("status", last.status());
  if (last->has_value()) Print(**last, false);
  const int signal = (*signals)->first_signal();
  return signal == 0 ? kExitDone : ExitCodeOf(signal);
}

// One status after the other, for a pipe.
int Follow(const RunAddress& run, const v1::Status& first, bool json,
           CoordinatorCalls* calls) {
  Print(first, json);
  v1::GenerationState last = first.state();
  absl::Time heard_at = SteadyNow();
  while (last != v1::CLOSED) {
    const absl::Status watched =
        calls->WatchStatus(kInterval, [&](const v1::Status& now) {
          Print(now, json);
          heard_at = SteadyNow();
          last = now.state();
          return last != v1::CLOSED;
        });
    if (last == v1::CLOSED) break;
    // It may be started again; programs that read us ask anew themselves.
    if (json || SteadyNow() - heard_at > kPatience) {
      return ShowFinished(run, watched, json, true);
    }
    calls->Pause(kInterval / 5);
  }
  return kExitDone;
}

}  // namespace

int RunStatus(const Arguments& arguments) {
  std::optional<std::string> run_dir, coordinator;
  RpcCredentials credentials;
  bool watch = false, json = false;
  CommandLine line("flotilla status [RUN] [flags]",
                   "Shows what a run is doing: the newest in runs/ if none is "
                   "named.");
  line.Text("--run-dir", "RUN", "the run's folder", &run_dir);
  line.Text("--coordinator", "HOST:PORT", "its coordinator", &coordinator);
  line.Switch("--watch",
              "go on until the run ends: on the whole screen of a terminal",
              &watch);
  line.Switch(
      "--json",
      "one JSON object, of a run that is over its summary (with --watch, "
      "one a line)",
      &json);
  AddCredentialFlags(&credentials, &line);
  const ParsedLine parsed = ParseLine("status", arguments, 1, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  if (!parsed.positional.empty()) run_dir = parsed.positional[0];

  const auto run = FindCoordinator(coordinator, run_dir);
  if (!run.ok()) return Report("status", run.status());
  const auto calls = CoordinatorCalls::Make(
      run->address, WithRunToken(credentials, run->run_dir));
  if (!calls.ok()) return Report("status", calls.status());
  const auto status = (*calls)->GetStatus(kStatusTimeout);
  const absl::Status answered =
      status.ok() ? CheckSameRun(*run, *status) : status.status();
  if (!answered.ok()) return ShowFinished(*run, answered, json, watch);
  if (!watch) {
    Print(*status, json);
    return kExitDone;
  }
  return !json && Terminal::IsThere()
             ? Watch(*run, *status, calls->get())
             : Follow(*run, *status, json, calls->get());
}

}  // namespace flotilla
