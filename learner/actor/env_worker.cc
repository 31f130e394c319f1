#include "learner/actor/env_worker.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "services/base/config_rules.h"
#include "services/base/printable.h"
#include "services/base/scratch_folder.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

constexpr double kLeasedConnectSeconds = 5;

// For this process's sockets.
const ScratchFolder& SocketFolder() {
  static const ScratchFolder folder;
  return folder;
}

absl::StatusOr<std::unique_ptr<EnvStream>> Open(const EnvWorkerOptions& options,
                                                const std::string& address,
                                                uint64_t worker_id,
                                                uint64_t incarnation, int rows,
                                                int groups, bool local,
                                                std::stop_token stop) {
  v1::Hello hello;
  hello.set_learner_id(absl::StrCat(options.learner_id, "/", options.name));
  hello.set_incarnation(incarnation);
  hello.set_worker_id(worker_id);
  hello.set_env_id(options.env.id());
  *hello.mutable_options() = options.env.options();
  hello.set_num_envs(rows);
  hello.set_num_groups(groups);
  hello.set_seed(options.seed);
  hello.set_offer_shared_memory(local && options.env.shared_memory());
  EnvStreamOptions stream;
  stream.credentials = options.credentials;
  // A leased server that is gone is to be noticed soon: there may be others. A
  // process of ours that is slow is starved, or loads Python; were it gone, we
  // would know.
  const bool patient = local || IsGym(options.env.id());
  stream.connect_timeout = absl::Seconds(
      patient ? options.env.reset_timeout_seconds() : kLeasedConnectSeconds);
  stream.step_timeout = absl::Seconds(options.env.step_timeout_seconds());
  stream.reset_timeout = absl::Seconds(options.env.reset_timeout_seconds());
  stream.stop = std::move(stop);
  return OpenEnvStream(address, std::move(hello), stream);
}

// A server that is nobody of `avoid`; the others are given back. Nobody can tell
// the coordinator whom to leave out: it may offer all of them first, so one more
// is asked for.
std::optional<v1::Member> LeaseOne(const EnvWorkerOptions& options,
                                   const std::vector<std::string>& avoid) {
  const auto leased = options.coordinator->LeaseEnvServers(
      options.env.id(), static_cast<int>(avoid.size()) + 1);
  if (!leased.ok()) return std::nullopt;
  std::optional<v1::Member> chosen;
  std::vector<std::string> others;
  for (const v1::Member& server : *leased) {
    const bool avoided =
        std::find(avoid.begin(), avoid.end(), server.id()) != avoid.end();
    if (!chosen && !avoided) {
      chosen = server;
    } else {
      others.push_back(server.id());
    }
  }
  if (!others.empty()) {
    options.coordinator->ReleaseEnvServers(others).IgnoreError();
  }
  return chosen;
}

}  // namespace

void DroppedServers::Drop(const std::string& id, absl::Time until) {
  MutexLock lock(&mu_);
  dropped_.push_back({id, until});
}

std::vector<std::string> DroppedServers::At(absl::Time now) {
  MutexLock lock(&mu_);
  std::erase_if(dropped_, [&](const Dropped& d) { return d.until <= now; });
  std::vector<std::string> ids;
  for (const Dropped& dropped : dropped_) ids.push_back(dropped.id);
  return ids;
}

int RetryWaitMs(double seconds) {
  if (!(seconds > 0)) return 0;
  constexpr double kMost = std::numeric_limits<int>::max();
  return static_cast<int>(std::clamp(std::round(1000 * seconds), 1.0, kMost));
}

void SleepUnless(std::stop_token stop, absl::Duration delay) {
  std::mutex mu;
  std::condition_variable_any cv;
  std::unique_lock lock(mu);
  cv.wait_for(lock, stop, absl::ToChronoMilliseconds(delay),
              [] { return false; });
}

absl::StatusOr<EnvWorker> StartLocalEnvWorker(const EnvWorkerOptions& options,
                                              uint64_t worker_id,
                                              uint64_t incarnation, int rows,
                                              int groups,
                                              std::stop_token stop) {
  RETURN_IF_ERROR(SocketFolder().status());
  static std::atomic<int> sockets = 0;
  const std::string socket = absl::StrCat(
      SocketFolder().path(), "/", options.name, "_", worker_id, "_", sockets++);
  SubprocessOptions program;
  program.argv = {ProgramFolder() + "/flotilla-envserver",
                  "--listen=unix:" + socket, "--env=" + options.env.id(),
                  absl::StrCat("--threads=", options.threads),
                  absl::StrCat("--retry-wait-ms=",
                               RetryWaitMs(options.env.retry_wait_seconds()))};
  if (options.env.retry() == v1::RETRY_RENEW) {
    program.argv.push_back("--renew-failed");
  }
  if (!options.log_folder.empty()) {
    program.log_path = absl::StrCat(options.log_folder, "/env_", options.name,
                                    "_", worker_id, ".log");
  }
  EnvWorker worker;
  worker.address = "unix:" + socket;
  ASSIGN_OR_RETURN(worker.process, Subprocess::Start(program));
  const absl::Status started =
      worker.process->AwaitFile(socket, absl::Minutes(2), stop);
  if (!started.ok()) {
    return absl::Status(
        started.code(),
        absl::StrCat(
            "env worker (pid ", worker.process->pid(), ") ", started.message(),
            program.log_path.empty() ? "" : "; its log is ", program.log_path));
  }
  ASSIGN_OR_RETURN(worker.stream,
                   Open(options, worker.address, worker_id, incarnation, rows,
                        groups, /*local=*/true, stop));
  return worker;
}

absl::StatusOr<EnvWorker> LeaseEnvWorker(const EnvWorkerOptions& options,
                                         DroppedServers* dropped,
                                         uint64_t worker_id,
                                         uint64_t incarnation, int rows,
                                         int groups, std::stop_token stop) {
  absl::Duration delay = absl::Milliseconds(100);
  while (!stop.stop_requested()) {
    if (const std::optional<v1::Member> server =
            LeaseOne(options, dropped->At(absl::Now()))) {
      EnvWorker worker;
      worker.address = server->address();
      worker.host = server->host();
      worker.remote_id = server->id();
      absl::StatusOr<std::unique_ptr<EnvStream>> stream =
          Open(options, worker.address, worker_id, incarnation, rows, groups,
               /*local=*/false, stop);
      if (stream.ok()) {
        worker.stream = *std::move(stream);
        return worker;
      }
      LOG(WARNING) << "env server " << server->id() << " at " << worker.address
                   << " does not take us: "
                   << PrintableLine(stream.status().message());
      options.coordinator->ReleaseEnvServers({server->id()}).IgnoreError();
    }
    SleepUnless(stop, delay);
    delay = std::min(2 * delay, absl::Seconds(2));
  }
  return absl::CancelledError("closing");
}

}  // namespace flotilla
