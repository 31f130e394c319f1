#ifndef FLOTILLA_SERVICES_RPC_HEALTH_SERVICE_H_
#define FLOTILLA_SERVICES_RPC_HEALTH_SERVICE_H_

#include <cstddef>
#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "services/base/mutex.h"

namespace flotilla {

// grpc.health.v1.Health. gRPC's own is not compiled from the proto, so its
// reflection does not describe it and grpcurl cannot call it.
//
// What strangers may ask and keep asking is bounded: Watch ends with
// RESOURCE_EXHAUSTED where kMaxWatchers look on already, and with
// INVALID_ARGUMENT for a name that is longer than a service's can be.
//
// Thread-safe. Must outlive the server it is registered with.
class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  using ServingStatus = grpc::health::v1::HealthCheckResponse::ServingStatus;

  static constexpr size_t kMaxWatchers = 250;
  static constexpr size_t kMaxNameBytes = 256;

  // Makes `service` known, or changes its state, and tells its watchers.
  // "" is the server as a whole.
  void SetServing(const std::string& service, bool serving);

  // Everything is NOT_SERVING from here on; watchers are told so and finished.
  void Shutdown();

  grpc::ServerUnaryReactor* Check(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request,
      grpc::health::v1::HealthCheckResponse* response) override;

  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  class Watcher;

  ServingStatus StatusOf(const std::string& service) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  bool shut_down_ ABSL_GUARDED_BY(mu_) = false;
  std::map<std::string, bool> serving_ ABSL_GUARDED_BY(mu_);
  std::set<Watcher*> watchers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_HEALTH_SERVICE_H_
