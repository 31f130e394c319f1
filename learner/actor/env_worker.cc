#include "learner/actor/env_worker.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "glog/logging.h"
#include "services/base/env_origin.h"
#include "services/base/printable.h"
#include "services/base/scratch_folder.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"
#include "services/env/env_program.h"

namespace flotilla {
namespace {

constexpr absl::Duration kLeasedReachTimeout = absl::Seconds(5);
// For a server that was just told to dial, or finds that it has to again.
constexpr absl::Duration kDialTimeout = absl::Seconds(10);
constexpr absl::Duration kStartTimeout = absl::Minutes(2);  // of our own
constexpr absl::Duration kEndTimeout = absl::Milliseconds(50);
// Workers of an evaluation have ids from a multiple of it on. In a socket's name,
// which has to be short (kLongestName in services/base/scratch_folder.cc), the
// options' tells them apart.
constexpr uint64_t kIdsOfAKind = uint64_t{1} << 40;

// For this process's sockets. Removed at its end, by exit or by quick_exit.
const ScratchFolder& SocketFolder() {
  static std::unique_ptr<const ScratchFolder> folder;
  static std::once_flag made;
  std::call_once(made, [] {
    folder = std::make_unique<const ScratchFolder>();
    std::at_quick_exit([] { folder.reset(); });
  });
  return *folder;
}

// What is played, and how much of it.
struct Part {
  uint64_t worker_id;
  uint64_t incarnation;
  int rows;
  int groups;
};

v1::Hello MakeHello(const EnvWorkerOptions& options, const Part& part,
                    const std::string& learner_id, bool offer_shared_memory) {
  v1::Hello hello;
  hello.set_learner_id(learner_id);
  hello.set_incarnation(part.incarnation);
  hello.set_worker_id(part.worker_id);
  hello.set_env_id(options.env.id());
  *hello.mutable_options() = options.env.options();
  hello.set_num_envs(part.rows);
  hello.set_num_groups(part.groups);
  hello.set_seed(options.seed);
  hello.set_offer_shared_memory(offer_shared_memory &&
                                options.env.shared_memory());
  hello.set_offer_ring(hello.offer_shared_memory() && options.env.ring());
  return hello;
}

std::string LearnerId(const EnvWorkerOptions& options) {
  return absl::StrCat(options.learner_id, "/", options.name);
}

EnvStreamOptions StreamOptions(const EnvWorkerOptions& options,
                               std::stop_token stop) {
  EnvStreamOptions stream;
  stream.credentials = options.credentials;
  // A process of ours that is slow is starved, or loads Python; were it gone, we
  // would know.
  stream.connect_timeout = absl::Seconds(options.env.reset_timeout_seconds());
  stream.step_timeout = absl::Seconds(options.env.step_timeout_seconds());
  stream.reset_timeout = absl::Seconds(options.env.reset_timeout_seconds());
  stream.ring_spin = options.ring_spin;
  stream.stop = std::move(stop);
  return stream;
}

// Of StartEnvProgram: flotilla-envserver, told all that the configuration says
// of it, or the program of env.server.
EnvProgramOptions ProgramOptions(const EnvWorkerOptions& options,
                                 const EnvOrigin& origin, uint64_t worker_id) {
  EnvProgramOptions program;
  program.env_id = options.env.id();
  static std::atomic<int> sockets = 0;
  program.socket = absl::StrCat(SocketFolder().path(), "/", options.name, "_",
                                worker_id % kIdsOfAKind, "_", sockets++);
  if (!options.log_folder.empty()) {
    program.log_path = absl::StrCat(options.log_folder, "/env_", options.name,
                                    "_", worker_id, ".log");
  }
  program.foreign = origin.kind == EnvOrigin::Kind::kProgram;
  if (program.foreign) {
    program.command = origin.command;
    program.called = absl::StrCat("env.server \"", options.env.server(), "\"");
    return program;
  }
  program.called = "env worker";
  program.command = {
      ProgramFolder() + "/flotilla-envserver",
      absl::StrCat("--threads=", options.threads),
      absl::StrCat("--retry-wait-ms=",
                   RetryWaitMs(options.env.retry_wait_seconds()))};
  if (options.env.retry() == v1::RETRY_RENEW) {
    program.command.push_back("--renew-failed");
  }
  return program;
}

absl::StatusOr<EnvWorker> StartProgram(const EnvWorkerOptions& options,
                                       const EnvOrigin& origin,
                                       const Part& part, std::stop_token stop) {
  RETURN_IF_ERROR(SocketFolder().status());
  const EnvProgramOptions program =
      ProgramOptions(options, origin, part.worker_id);
  const absl::Duration timeout =
      program.foreign ? absl::Seconds(options.env.reset_timeout_seconds())
                      : kStartTimeout;
  ASSIGN_OR_RETURN(EnvProgram started, StartEnvProgram(program, timeout, stop));
  EnvStreamOptions stream = StreamOptions(options, std::move(stop));
  stream.gone = [&] { return started.process->Poll().has_value(); };
  // It serves us alone, where nobody else gets at it.
  if (program.foreign) stream.credentials = RpcCredentials();
  auto opened = OpenEnvStream(started.address,
                              MakeHello(options, part, LearnerId(options),
                                        /*offer_shared_memory=*/true),
                              stream);
  if (!opened.ok()) {
    if (!program.foreign) return opened.status();
    const auto exit = started.process->Wait(kEndTimeout);
    return absl::Status(
        opened.status().code(),
        absl::StrCat(
            program.called,
            exit ? absl::StrCat(" has ended (", exit->ToString(), ")") : "",
            ": ",
            absl::StripPrefix(
                opened.status().message(),
                absl::StrCat("env server ", started.address, ": ")),
            program.log_path.empty() ? "" : "; its log is ", program.log_path));
  }
  EnvWorker worker;
  worker.process = std::move(started.process);
  worker.stream = *std::move(opened);
  worker.incarnation = part.incarnation;
  worker.address = started.address;
  return worker;
}

absl::StatusOr<EnvWorker> JoinRunning(const EnvWorkerOptions& options,
                                      const std::string& address,
                                      const Part& part, std::stop_token stop) {
  // All workers of all runs may come here: each is somebody else to it.
  const std::string learner_id =
      absl::StrCat(options.run, "/", LearnerId(options), "/", part.worker_id);
  EnvStreamOptions stream = StreamOptions(options, std::move(stop));
  stream.credentials = options.server_credentials;
  auto opened =
      OpenEnvStream(address,
                    MakeHello(options, part, learner_id,
                              /*offer_shared_memory=*/IsLocalAddress(address)),
                    stream);
  if (opened.ok()) {
    EnvWorker worker;
    worker.stream = *std::move(opened);
    worker.incarnation = part.incarnation;
    worker.address = address;
    return worker;
  }
  const bool taken = absl::IsResourceExhausted(opened.status());
  return absl::Status(
      opened.status().code(),
      absl::StrCat(opened.status().message(),
                   taken ? "; a server that takes one player at a time is for "
                           "one learner with env.num_workers=1 and "
                           "evaluation.every_updates=0; with "
                           "env.server=exec:COMMAND each worker starts its own"
                         : ""));
}

// A server that is nobody of `avoid`; the others are given back. Nobody can tell
// the coordinator whom to leave out: it may offer all of them first, so one more
// is asked for. What was not answered is asked for under the same `lease_id` the
// next time: it may have been leased.
std::optional<v1::Member> LeaseOne(const EnvWorkerOptions& options,
                                   const std::vector<std::string>& avoid,
                                   std::string* lease_id) {
  static std::atomic<uint64_t> requests = 0;
  if (lease_id->empty()) *lease_id = absl::StrCat(++requests);
  const auto leased = options.coordinator->LeaseEnvServers(
      options.env.id(), static_cast<int>(avoid.size()) + 1,
      options.dial == nullptr ? "" : options.dial->address(), *lease_id);
  if (!leased.ok()) return std::nullopt;
  lease_id->clear();
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

absl::StatusOr<std::unique_ptr<EnvStream>> OpenLeased(
    const EnvWorkerOptions& options, const v1::Member& server, const Part& part,
    std::stop_token stop) {
  EnvStreamOptions stream = StreamOptions(options, stop);
  const v1::Hello hello = MakeHello(options, part, LearnerId(options),
                                    /*offer_shared_memory=*/false);
  if (server.dials()) {
    if (options.dial == nullptr) {
      return absl::FailedPreconditionError("it dials, and nobody listens here");
    }
    ASSIGN_OR_RETURN(
        std::unique_ptr<PlayTransport> transport,
        options.dial->service()->Await(server.id(), kDialTimeout, stop));
    return OpenEnvStream(std::move(transport), server.id(), hello, stream);
  }
  // One that is gone is to be noticed soon: there may be others.
  stream.reach_timeout = kLeasedReachTimeout;
  return OpenEnvStream(server.address(), hello, stream);
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

absl::StatusOr<EnvWorker> StartEnvWorker(const EnvWorkerOptions& options,
                                         uint64_t worker_id,
                                         uint64_t incarnation, int rows,
                                         int groups, std::stop_token stop) {
  const Part part = {worker_id, incarnation, rows, groups};
  ASSIGN_OR_RETURN(const EnvOrigin origin,
                   ParseEnvOrigin(options.env.server()));
  if (origin.kind == EnvOrigin::Kind::kRunning) {
    return JoinRunning(options, origin.address, part, std::move(stop));
  }
  return StartProgram(options, origin, part, std::move(stop));
}

absl::StatusOr<EnvWorker> LeaseEnvWorker(
    const EnvWorkerOptions& options, DroppedServers* dropped,
    uint64_t worker_id, absl::FunctionRef<uint64_t()> incarnation, int rows,
    int groups, std::stop_token stop, std::optional<v1::Member> leased) {
  absl::Duration delay = absl::Milliseconds(100);
  std::string lease_id;
  while (!stop.stop_requested()) {
    if (!leased) {
      leased = LeaseOne(options, dropped->At(SteadyNow()), &lease_id);
    }
    if (const auto server = std::exchange(leased, std::nullopt)) {
      EnvWorker worker;
      worker.address = server->dials() ? "dialled in" : server->address();
      worker.host = server->host();
      worker.remote_id = server->id();
      worker.incarnation = incarnation();
      absl::StatusOr<std::unique_ptr<EnvStream>> stream =
          OpenLeased(options, *server,
                     {worker_id, worker.incarnation, rows, groups}, stop);
      if (stream.ok()) {
        worker.stream = *std::move(stream);
        return worker;
      }
      LOG(WARNING) << "env server " << server->id() << " ("
                   << PrintableLine(worker.address) << ") does not take us: "
                   << PrintableLine(stream.status().message());
      // Another's turn, if there is one: whoever it is might refuse for ever.
      dropped->Drop(server->id(), SteadyNow() + 2 * delay);
      options.coordinator->ReleaseEnvServers({server->id()}).IgnoreError();
    }
    SleepUnless(stop, delay);
    delay = std::min(2 * delay, absl::Seconds(2));
  }
  return absl::CancelledError("closing");
}

}  // namespace flotilla
