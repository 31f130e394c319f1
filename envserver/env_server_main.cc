#include "envserver/env_server_main.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <semaphore>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "envserver/gym_server.h"
#include "glog/logging.h"
#include "services/base/atomic_file.h"
#include "services/base/command_line.h"
#include "services/base/config_rules.h"
#include "services/base/cores.h"
#include "services/base/descriptors.h"
#include "services/base/host_name.h"
#include "services/base/lifeline.h"
#include "services/base/shutdown.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"
#include "services/base/version.h"
#include "services/coordinator/coordinator_client.h"
#include "services/coordinator/member_metadata.h"
#include "services/env/env_service.h"
#include "services/rpc/credential_flags.h"
#include "services/rpc/reachable_address.h"
#include "services/rpc/server.h"

namespace flotilla {
namespace {

struct Flags {
  std::string listen;
  std::string coordinator;
  std::string address_file;
  int threads = 0;
  int num_envs = 4096;
  int restarts = 0;
  std::string env;
  int retry_wait_ms = 100;
  bool renew_failed = false;
  RpcCredentials credentials;
};

CommandLine MakeLine(const std::string& program, Flags* flags) {
  CommandLine line(
      program + " [flags]",
      absl::StrCat("Serves environments to Flotilla learners.\n\n  ", program,
                   " --listen unix:/tmp/env.sock\n  ", program,
                   " --listen 127.0.0.1:0 --address-file env.address\n  ",
                   program, " --coordinator node0:29400 --token-file token"));
  line.Text("--listen", "ADDRESS",
            "HOST:PORT (port 0: any free one) or unix:PATH; by default a free "
            "port, of loopback unless --coordinator is elsewhere",
            &flags->listen);
  line.Text("--coordinator", "HOST:PORT",
            "a run's coordinator, which then leases this server to learners",
            &flags->coordinator);
  line.Text("--address-file", "FILE",
            "gets the address once it is served, port included",
            &flags->address_file);
  line.Int("--threads", "N", 0,
           "threads that step environments worth it (default 0: one a core, "
           "of a CPU quota as many as it allows)",
           &flags->threads);
  line.Int("--num-envs", "N", 1,
           "environments offered to a learner (default 4096)",
           &flags->num_envs);
  line.Text("--env", "ID",
            "the environment that will be played, where it is known: a gym: "
            "one on a unix socket is then served by Python alone",
            &flags->env);
  line.Int("--retry-wait-ms", "N", 0,
           "how long an environment that failed is left alone before it is "
           "tried again (default 100); its row is skipped meanwhile, and its "
           "learner's other rows go on",
           &flags->retry_wait_ms);
  line.Int("--restarts", "N", 0, "how often it was replaced until now",
           &flags->restarts);
  line.Switch("--renew-failed",
              "make an environment that failed anew, instead of a reset",
              &flags->renew_failed);
  AddCredentialFlags(&flags->credentials, &line);
  return line;
}

constexpr absl::Duration kGrace = absl::Seconds(5);
constexpr absl::Duration kJoinTimeout = absl::Seconds(60);
constexpr absl::Duration kJoinAttempt = absl::Seconds(2);
constexpr absl::Duration kJoinPause = absl::Milliseconds(200);
constexpr std::chrono::seconds kReportPeriod(1);

int Threads(const Flags& flags) {
  return flags.threads > 0 ? flags.threads : CoresToFill();
}

std::string ListenAddress(const Flags& flags) {
  if (!flags.listen.empty()) return flags.listen;
  const bool local =
      flags.coordinator.empty() || IsLocalAddress(flags.coordinator);
  return local ? "127.0.0.1:0" : "0.0.0.0:0";
}

// Whether another has our place: one that ended in the same container, say, where
// host and pid are the same again. Its place is free when it is found dead. What a
// certificate does not allow is refused in other words, and for good.
bool IsTaken(const absl::Status& status) {
  return absl::IsPermissionDenied(status) &&
         absl::StrContains(status.message(), kSecretMetadata);
}

// Null without --coordinator, or after `stop`.
absl::StatusOr<std::unique_ptr<CoordinatorClient>> JoinCoordinator(
    const Flags& flags, const std::string& address,
    const std::stop_token& stop) {
  if (flags.coordinator.empty()) return nullptr;
  const std::string host = HostName();
  v1::Member self;
  self.set_id(absl::StrCat("env/", host, "/", getpid()));
  self.set_incarnation(1);
  self.set_role(v1::ENV_SERVER);
  ASSIGN_OR_RETURN(*self.mutable_address(),
                   ReachableAddress(address, flags.coordinator));
  self.set_host(host);
  self.set_pid(getpid());
  self.set_version(Version());
  self.set_num_envs(flags.num_envs);
  self.set_restarts(flags.restarts);
  const absl::Time deadline = SteadyNow() + kJoinTimeout;
  while (!stop.stop_requested()) {
    auto client =
        JoinRun(flags.coordinator, self, flags.credentials, kJoinAttempt);
    const bool taken = IsTaken(client.status());
    if (client.ok() || !(taken || absl::IsUnavailable(client.status())) ||
        SteadyNow() > deadline) {
      return client;
    }
    if (taken) {
      LOG_FIRST_N(WARNING, 1) << client.status().message() << "; trying again";
      absl::SleepFor(kJoinPause);
    }
  }
  return nullptr;
}

// Returns after a signal, or when the run is over. Reports progress meanwhile.
void ServeUntil(std::binary_semaphore* stop, const EnvService& service,
                CoordinatorClient* coordinator) {
  if (coordinator == nullptr) return stop->acquire();
  int64_t last_steps = 0;
  while (!stop->try_acquire_for(kReportPeriod)) {
    if (coordinator->Latest().closed()) {
      LOG(INFO) << "the run is over";
      return;
    }
    const int64_t steps = service.steps();
    v1::Heartbeat heartbeat;
    heartbeat.set_phase(v1::STEPPING);
    heartbeat.set_env_steps(steps);
    heartbeat.set_steps_per_second(
        static_cast<double>(steps - last_steps) /
        std::chrono::duration<double>(kReportPeriod).count());
    last_steps = steps;
    coordinator->Report(heartbeat);
  }
}

void LogIfError(const absl::Status& status) {
  if (!status.ok()) LOG(WARNING) << status.message();
}

// A learner's own worker needs nobody between it and Python; credentials and
// leases are for others.
bool IsServedByPythonAlone(const Flags& flags) {
  return IsGym(flags.env) && absl::StartsWith(flags.listen, "unix:") &&
         flags.coordinator.empty();
}

// Goes on as the Python server. Returns only if that cannot be.
absl::Status BecomePython(const Flags& flags) {
  const GymServerOptions options = {
      .max_num_envs = flags.num_envs,
      .retry_wait = absl::Milliseconds(flags.retry_wait_ms),
      .renew_failed = flags.renew_failed};
  std::vector<std::string> python = options.Flags();
  python.insert(python.end(), {"--listen=" + flags.listen,
                               "--address_file=" + flags.address_file});
  ASSIGN_OR_RETURN(std::vector<std::string> command, GymServerCommand(python));
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  return absl::FailedPreconditionError(
      absl::StrCat("cannot start ", command[0], ": ", std::strerror(errno)));
}

// Serves until a signal, or the end of the run.
absl::Status RunServer(const EnvironmentRegistry& registry,
                       const Flags& flags) {
  ASSIGN_OR_RETURN(const auto signals, ShutdownSignals::Install());
  ObeyParentOnly();
  const RegistryFactory factory(&registry, Threads(flags),
                                absl::Milliseconds(flags.retry_wait_ms),
                                flags.renew_failed);
  PlayOptions play;
  play.max_num_envs = flags.num_envs;
  EnvService service(&factory, play);
  RpcServerOptions options;
  options.address = ListenAddress(flags);
  options.credentials = flags.credentials;
  const std::string name = v1::EnvService::service_full_name();
  options.services = {
      {name,
       &service,
       {{"/" + name + "/Play", {{kLearnerRole}}},
        {"/" + name + "/Replay", {{kLearnerRole, kClientRole}}},
        {"/" + name + "/GetSpec", {{kLearnerRole, kClientRole}, true}}}}};
  options.on_drain = [&] { service.Shutdown(); };
  ASSIGN_OR_RETURN(const auto server, RpcServer::Start(options));
  if (!flags.address_file.empty()) {
    RETURN_IF_ERROR(
        WriteFileAtomically(flags.address_file, server->address() + "\n"));
  }
  LOG(INFO) << "serving environments on " << server->address();
  ASSIGN_OR_RETURN(const auto coordinator,
                   JoinCoordinator(flags, server->address(), signals->Stop()));
  std::binary_semaphore stop(0);
  const std::stop_callback on_stop(signals->Stop(), [&] { stop.release(); });
  ServeUntil(&stop, service, coordinator.get());
  // Of a run that is over, the coordinator may be gone.
  if (coordinator != nullptr && !coordinator->Latest().closed()) {
    LogIfError(coordinator->Leave("stopped"));
  }
  service.Shutdown();
  // Not the server's own grace: it would also wait for learners that are busy
  // learning to look at their connections.
  if (!service.AwaitStreams(kGrace)) {
    LOG(WARNING) << "an environment has not ended its step in "
                 << absl::FormatDuration(kGrace) << ": ending without it";
    std::_Exit(EXIT_SUCCESS);
  }
  server->Shutdown(absl::ZeroDuration());
  return absl::OkStatus();
}

}  // namespace

int EnvServerMain(int argc, char** argv, const EnvironmentRegistry& registry) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  const std::string program = std::filesystem::path(argv[0]).filename();
  Flags flags;
  CommandLine line = MakeLine(program, &flags);
  const auto exit_code = ParseFlags(program, argc, argv, &line);
  if (exit_code) return *exit_code;
  absl::Status status = CheckCredentials(flags.credentials);
  if (status.ok() && IsServedByPythonAlone(flags)) status = BecomePython(flags);
  // Not before: the lifeline is the Python server's then.
  StartLifelineWatch();
  RaiseDescriptorLimit();
  if (status.ok()) status = RunServer(registry, flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s: %s\n", program.c_str(),
               std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace flotilla
