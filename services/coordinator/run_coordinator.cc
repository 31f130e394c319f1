#include "services/coordinator/run_coordinator.h"

#include <glog/logging.h>

#include <condition_variable>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/atomic_file.h"
#include "services/base/mutex.h"
#include "services/base/secret.h"
#include "services/base/status_macros.h"
#include "services/coordinator/metrics_page.h"
#include "services/rpc/page_server.h"
#include "services/rpc/server.h"

namespace flotilla {
namespace {

constexpr absl::Duration kGrace = absl::Seconds(2);

// Values are 1 MiB at most; a batch of keys fits as well.
constexpr int kMaxMessageBytes = 4 << 20;

absl::Status Check(const RosterOptions& roster) {
  if (roster.min_learners < 1 || roster.max_learners < roster.min_learners) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--min_learners=", roster.min_learners,
        " --max_learners=", roster.max_learners, ": want 1 <= min <= max"));
  }
  if (roster.heartbeat < absl::Milliseconds(10)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--heartbeat_seconds is ", absl::ToDoubleSeconds(roster.heartbeat),
        ", want 0.01 or more"));
  }
  if (roster.dead_after < 2 * roster.heartbeat) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--dead_after_seconds is ", absl::ToDoubleSeconds(roster.dead_after),
        ", want at least two heartbeats of ",
        absl::ToDoubleSeconds(roster.heartbeat), " s"));
  }
  if (roster.last_call < absl::ZeroDuration()) {
    return absl::InvalidArgumentError("--last_call_seconds is negative");
  }
  return absl::OkStatus();
}

// Env servers join and leave, learners do all of a run's work and stop it, people look
// on, stop it and change it.
MethodRoles Callers() {
  MethodRoles callers;
  const auto* service =
      v1::Member::descriptor()->file()->FindServiceByName("CoordinatorService");
  for (int i = 0; i < service->method_count(); ++i) {
    const std::string method = service->method(i)->name();
    MethodAccess access = {{kLearnerRole}};
    if (method == "Register" || method == "Session" || method == "Leave") {
      access.roles = {kLearnerRole, kEnvServerRole};
    } else if (method == "GetStatus" || method == "WatchStatus") {
      access = {{kClientRole, kLearnerRole, kEnvServerRole}, true};
    } else if (method == "Stop") {  // learners pass on a signal that they got
      access.roles = {kClientRole, kLearnerRole};
    } else if (method == "Set") {
      access.roles = {kClientRole};
    }
    callers[absl::StrCat("/", service->full_name(), "/", method)] = access;
  }
  return callers;
}

// Everybody on this host reaches loopback, and could end or falsify the run.
absl::Status CheckWhoMayChangeIt(const RunCoordinatorOptions& options) {
  const RpcCredentials& credentials = options.credentials;
  if (credentials.uses_tls() || credentials.uses_token() ||
      credentials.insecure || HasFolder(options.listen)) {
    return absl::OkStatus();
  }
  // Names are not resolved: what means loopback here may be every interface, see
  // Listener::Bind.
  if (!options.listen.empty() && !IsLocalAddress(options.listen)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "other hosts may reach ", options.listen,
        ": give --tls-cert, --tls-key and --tls-ca, or --token-file, or "
        "--insecure on a network you trust, or listen on 127.0.0.1"));
  }
  return absl::InvalidArgumentError(
      "who may change this run? Give --run-token FILE, which gets a token that "
      "its learners and `flotilla stop` take as --token-file (looking on stays "
      "open), or --token-file, or --tls-cert, --tls-key and --tls-ca, or "
      "--insecure: everybody on this host");
}

absl::StatusOr<std::unique_ptr<RpcServer>> Serve(
    const RunCoordinatorOptions& options, CoordinatorService* service) {
  RpcServerOptions server;
  server.credentials = options.credentials;
  server.services = {
      {v1::CoordinatorService::service_full_name(), service, Callers()}};
  server.max_message_bytes = kMaxMessageBytes;
  server.on_drain = [service] { service->Shutdown(); };
  server.address =
      options.listen.empty() ? kDefaultCoordinatorAddress : options.listen;
  auto result = RpcServer::Start(server);
  if (options.listen.empty() && absl::IsUnavailable(result.status())) {
    LOG(INFO) << kDefaultCoordinatorAddress << " is taken; taking a free port";
    server.address = "127.0.0.1:0";
    return RpcServer::Start(server);
  }
  return result;
}

// Into `file`, if there is one, where something listens. One that takes over a
// run is, as a rule, where the one before it was: a disk that is full must not
// end it.
absl::Status WriteAddress(const std::string& file, const std::string& address,
                          const CoordinatorService& service) {
  if (file.empty()) return absl::OkStatus();
  const absl::Status written =
      WriteFileAtomically(file, absl::StrCat(address, "\n"));
  if (written.ok() || !service.takes_over()) return written;
  LOG(ERROR) << written << "; going on";
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PageServer>> ServeMetrics(
    const RunCoordinatorOptions& options, CoordinatorService* service) {
  if (options.metrics_listen.empty()) return nullptr;
  PageServerOptions page;
  if (!options.metrics_token_file.empty()) {
    RpcCredentials credentials;
    credentials.token_file = options.metrics_token_file;
    ASSIGN_OR_RETURN(page.token, ReadToken(credentials));
  }
  if (!HasFolder(options.metrics_listen)) {
    page.tls = options.credentials;
    page.roles = {kClientRole, kLearnerRole, kEnvServerRole};
  }
  const bool https = page.tls.uses_tls();
  page.address = options.metrics_listen;
  page.path = "/metrics";
  page.content_type = kMetricsContentType;
  page.page = [service] { return MetricsPage(service->CurrentStatus()); };
  ASSIGN_OR_RETURN(auto server, PageServer::Start(std::move(page)));
  RETURN_IF_ERROR(
      WriteAddress(options.metrics_address_file, server->address(), *service));
  LOG(INFO) << "metrics on " << (https ? "https://" : "http://")
            << server->address() << "/metrics";
  return server;
}

void WaitForStop(std::stop_token stop) {
  Mutex mu;
  std::condition_variable changed;
  bool stopped = false;
  std::stop_callback on_stop(stop, [&] {
    MutexLock lock(&mu);
    stopped = true;
    changed.notify_all();
  });
  MutexLock lock(&mu);
  while (!stopped) lock.Wait(&changed);
}

}  // namespace

absl::Status RunCoordinator(const RunCoordinatorOptions& options,
                            std::stop_token stop) {
  RETURN_IF_ERROR(Check(options.service.roster));
  RETURN_IF_ERROR(CheckWhoMayChangeIt(options));
  if (!options.metrics_listen.empty()) {
    RETURN_IF_ERROR(CheckMetricsReaders(options.metrics_listen,
                                        options.metrics_token_file,
                                        options.credentials));
  }
  if (options.credentials.open_reading) {
    RETURN_IF_ERROR(ReadOrDrawSecret(options.credentials.token_file).status());
  }
  ASSIGN_OR_RETURN(auto service, CoordinatorService::Make(options.service));
  ASSIGN_OR_RETURN(auto server, Serve(options, service.get()));
  ASSIGN_OR_RETURN(const auto metrics, ServeMetrics(options, service.get()));
  RETURN_IF_ERROR(service->Start());
  RETURN_IF_ERROR(
      WriteAddress(options.address_file, server->address(), *service));
  LOG(INFO) << "coordinator listens on " << server->address();
  WaitForStop(stop);
  LOG(INFO) << "shutting down";
  server->Shutdown(kGrace);
  return absl::OkStatus();
}

}  // namespace flotilla
