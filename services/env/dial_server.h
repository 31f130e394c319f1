#ifndef FLOTILLA_SERVICES_ENV_DIAL_SERVER_H_
#define FLOTILLA_SERVICES_ENV_DIAL_SERVER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "services/env/dial_service.h"
#include "services/rpc/credentials.h"
#include "services/rpc/server.h"

namespace flotilla {

// A learner's DialService, listening (env.dial_listen).
//
// Thread-safe.
class DialServer {
 public:
  // Listens at `listen`, HOST:PORT. On every interface, others are told the
  // address that this host has towards `coordinator`, HOST:PORT.
  // Errors: those of RpcServer::Start and ReachableAddress, naming
  // env.dial_listen.
  static absl::StatusOr<std::unique_ptr<DialServer>> Start(
      const std::string& listen, const std::string& coordinator,
      const RpcCredentials& credentials, const DialOptions& options = {});

  // Ends every stream.
  ~DialServer();

  // Where env servers are told to dial.
  const std::string& address() const { return address_; }

  DialService* service() { return &service_; }

 private:
  explicit DialServer(const DialOptions& options) : service_(options) {}

  std::string address_;
  DialService service_;
  std::unique_ptr<RpcServer> server_;  // after what it serves
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_DIAL_SERVER_H_
