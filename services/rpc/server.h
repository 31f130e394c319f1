#ifndef FLOTILLA_SERVICES_RPC_SERVER_H_
#define FLOTILLA_SERVICES_RPC_SERVER_H_

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/rpc/acceptor.h"
#include "services/rpc/channel.h"
#include "services/rpc/credentials.h"
#include "services/rpc/health_service.h"

namespace flotilla {

struct RpcServerOptions {
  std::string address;  // as Listener::Bind takes it

  RpcCredentials credentials;

  // Borrowed; must outlive the server. `name` is the full one, as in
  // v1::CoordinatorService::service_full_name().
  struct NamedService {
    std::string name;
    grpc::Service* service;
    MethodRoles roles = {};  // who may call it, with TLS
  };
  std::vector<NamedService> services;

  // The largest message it takes.
  int max_message_bytes = kMaxMessageBytes;

  // Runs once, early in Shutdown: asks long-lived streams to finish.
  std::function<void()> on_drain;
};

// A gRPC server as every Flotilla process runs it: bound to its address alone,
// with reflection and health beside its services. Connections that are silent,
// and many from one host, keep nobody else out (acceptor.h); compressed messages
// are refused.
//
// Thread-safe.
class RpcServer {
 public:
  // Errors: kInvalidArgument if the address is open to other hosts without TLS,
  // token or `credentials.insecure`; those of Listener::Bind.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const RpcServerOptions& options);

  // Shutdown, at once.
  ~RpcServer();

  // Where it listens: the host as it was given, with the port it got. Clients on
  // this host can use it if that is not 0.0.0.0.
  const std::string& address() const { return address_; }

  // Answers health checks with NOT_SERVING, refuses new calls, asks streams to
  // finish and waits for calls in flight; cancels what is left after `grace`.
  // Blocks. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  RpcServer(std::string address, std::function<void()> on_drain)
      : address_(std::move(address)), on_drain_(std::move(on_drain)) {}

  std::string address_;
  const std::function<void()> on_drain_;
  std::atomic<bool> drained_ = false;
  HealthService health_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<grpc::Server> server_;  // after what it uses
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_SERVER_H_
