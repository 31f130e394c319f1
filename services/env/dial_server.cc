#include "services/env/dial_server.h"

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "services/rpc/reachable_address.h"

namespace flotilla {
namespace {

// For the last words to reach servers that listen.
constexpr absl::Duration kGrace = absl::Seconds(1);

absl::Status Named(const std::string& listen, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("env.dial_listen \"", listen,
                                                  "\": ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DialServer>> DialServer::Start(
    const std::string& listen, const std::string& coordinator,
    const RpcCredentials& credentials, const DialOptions& options) {
  std::unique_ptr<DialServer> dial(new DialServer(options));
  RpcServerOptions server;
  server.address = listen;
  server.credentials = credentials;
  const std::string name = v1::DialService::service_full_name();
  server.services = {
      {name, &dial->service_, {{"/" + name + "/Dial", {{kEnvServerRole}}}}}};
  server.on_drain = [service = &dial->service_] { service->Shutdown(); };
  auto started = RpcServer::Start(server);
  if (!started.ok()) return Named(listen, started.status());
  dial->server_ = *std::move(started);
  auto reachable = ReachableAddress(dial->server_->address(), coordinator);
  if (!reachable.ok()) return Named(listen, reachable.status());
  dial->address_ = *std::move(reachable);
  LOG(INFO) << "env servers dial in at " << dial->address_;
  return dial;
}

DialServer::~DialServer() {
  if (server_ != nullptr) server_->Shutdown(kGrace);
}

}  // namespace flotilla
