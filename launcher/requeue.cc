#include "launcher/requeue.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stop_token>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "services/base/subprocess.h"

namespace flotilla {
namespace {

// What signals of one scancel may come apart, on nodes that have much to do.
constexpr absl::Duration kSignalTimeout = absl::Seconds(10);
constexpr absl::Duration kAnswerTimeout = absl::Seconds(30);

int FirstSignal(const ShutdownSignals& signals) {
  absl::Notification came;
  const std::stop_callback wake(signals.Stop(), [&] { came.Notify(); });
  came.WaitForNotificationWithTimeout(kSignalTimeout);
  return signals.first_signal();
}

}  // namespace

void RequeueIfWarned(const ShutdownSignals& signals) {
  const char* id = std::getenv("SLURM_JOB_ID");
  if (id == nullptr || FirstSignal(signals) != SIGUSR1) return;
  auto scontrol =
      Subprocess::Start({.argv = {"/usr/bin/env", "scontrol", "requeue", id}});
  const auto exit =
      scontrol.ok() ? (*scontrol)->Wait(kAnswerTimeout) : std::nullopt;
  // Slurm ends the job's processes as soon as it has taken the request: this
  // one may go before it has read the answer.
  const bool requeued = exit && (exit->code == 0 || exit->signal == SIGTERM);
  std::fprintf(stderr, "flotilla train: %s Slurm job %s\n",
               requeued ? "requeued" : "could not requeue", id);
}

}  // namespace flotilla
