#ifndef FLOTILLA_TESTS_TESTING_IN_PROCESS_SERVER_H_
#define FLOTILLA_TESTS_TESTING_IN_PROCESS_SERVER_H_

#include <glog/logging.h>
#include <grpcpp/channel.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/rpc/channel.h"
#include "services/rpc/server.h"

namespace flotilla {

// Serves `services` on a free loopback port, over real gRPC, for a test's
// scope. Link flotilla::rpc.
class InProcessServer {
 public:
  // The services are borrowed.
  explicit InProcessServer(std::vector<RpcServerOptions::NamedService> services,
                           std::function<void()> on_drain = nullptr,
                           const std::string& address = "127.0.0.1:0",
                           const RpcCredentials& credentials = {})
      : credentials_(credentials) {
    RpcServerOptions options;
    options.address = address;
    options.credentials = credentials;
    options.services = std::move(services);
    options.on_drain = std::move(on_drain);
    auto server = RpcServer::Start(options);
    CHECK(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  const std::string& address() const { return server_->address(); }
  RpcServer* server() { return server_.get(); }

  // A new connection to it.
  std::shared_ptr<grpc::Channel> Channel(CallMetadata metadata = {}) const {
    auto channel = MakeChannel(address(), credentials_, std::move(metadata));
    CHECK(channel.ok()) << channel.status();
    return *std::move(channel);
  }

 private:
  const RpcCredentials credentials_;
  std::unique_ptr<RpcServer> server_;
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_TESTING_IN_PROCESS_SERVER_H_
