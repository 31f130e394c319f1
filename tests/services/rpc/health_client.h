#ifndef FLOTILLA_TESTS_SERVICES_RPC_HEALTH_CLIENT_H_
#define FLOTILLA_TESTS_SERVICES_RPC_HEALTH_CLIENT_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "services/rpc/channel.h"
#include "services/rpc/grpc_status.h"

namespace flotilla {

using HealthResponse = grpc::health::v1::HealthCheckResponse;

// Asks for the health of `service`; gives up after 10 s.
inline absl::StatusOr<HealthResponse::ServingStatus> CheckHealth(
    const std::shared_ptr<grpc::Channel>& channel,
    const std::string& service = "") {
  auto stub = grpc::health::v1::Health::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(10));
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  HealthResponse response;
  const absl::Status status =
      FromGrpc(stub->Check(&context, request, &response));
  if (!status.ok()) return status;
  return response.status();
}

// The same from a client that connects with `credentials`.
inline absl::StatusOr<HealthResponse::ServingStatus> CheckHealth(
    const std::string& address, const RpcCredentials& credentials) {
  auto channel = MakeChannel(address, credentials);
  if (!channel.ok()) return channel.status();
  return CheckHealth(*channel);
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_SERVICES_RPC_HEALTH_CLIENT_H_
