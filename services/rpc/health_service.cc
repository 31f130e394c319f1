#include "services/rpc/health_service.h"

#include "absl/strings/str_cat.h"
#include "services/base/printable.h"

namespace flotilla {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// One Watch stream. Its fields are guarded by the service's mutex; it deletes
// itself when gRPC is done with it.
class HealthService::Watcher final
    : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  Watcher(HealthService* service, std::string name)
      : service_(service), name_(std::move(name)) {}

  // Tells the client, unless it knows already.
  void Update() ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_->mu_) {
    if (writing_ || finished_) return;
    const ServingStatus status = service_->StatusOf(name_);
    if (status != told_) {
      told_ = status;
      response_.set_status(status);
      writing_ = true;
      StartWrite(&response_);
    } else if (service_->shut_down_) {
      Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down"));
    }
  }

  // For the lock analysis, which cannot see that a service's watchers have that
  // service.
  void AssertLocked() const ABSL_ASSERT_EXCLUSIVE_LOCK(service_->mu_) {}

  void OnWriteDone(bool ok) override {
    MutexLock lock(&service_->mu_);
    writing_ = false;
    if (ok && !cancelled_) {
      Update();
    } else {
      Finish(grpc::Status::CANCELLED);
    }
  }

  void OnCancel() override {
    MutexLock lock(&service_->mu_);
    cancelled_ = true;
    if (!writing_) Finish(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    {
      MutexLock lock(&service_->mu_);
      service_->watchers_.erase(this);
    }
    delete this;
  }

  void Finish(const grpc::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_->mu_) {
    if (finished_) return;
    finished_ = true;
    grpc::ServerWriteReactor<HealthCheckResponse>::Finish(status);
  }

 private:
  HealthService* const service_;
  const std::string name_;
  ServingStatus told_ = HealthCheckResponse::UNKNOWN;
  HealthCheckResponse response_;
  bool writing_ = false;
  bool cancelled_ = false;
  bool finished_ = false;
};

void HealthService::SetServing(const std::string& service, bool serving) {
  MutexLock lock(&mu_);
  serving_[service] = serving;
  for (Watcher* watcher : watchers_) {
    watcher->AssertLocked();
    watcher->Update();
  }
}

void HealthService::Shutdown() {
  MutexLock lock(&mu_);
  shut_down_ = true;
  for (Watcher* watcher : watchers_) {
    watcher->AssertLocked();
    watcher->Update();
  }
}

HealthService::ServingStatus HealthService::StatusOf(
    const std::string& service) const {
  const auto found = serving_.find(service);
  if (found == serving_.end()) return HealthCheckResponse::SERVICE_UNKNOWN;
  return found->second && !shut_down_ ? HealthCheckResponse::SERVING
                                      : HealthCheckResponse::NOT_SERVING;
}

grpc::ServerUnaryReactor* HealthService::Check(
    grpc::CallbackServerContext* context, const HealthCheckRequest* request,
    HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  ServingStatus status;
  {
    MutexLock lock(&mu_);
    status = StatusOf(request->service());
  }
  if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
    reactor->Finish(
        {grpc::StatusCode::NOT_FOUND,
         absl::StrCat("no service \"",
                      PrintableLine(request->service(), kMaxNameBytes),
                      "\" here")});
    return reactor;
  }
  response->set_status(status);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext*, const HealthCheckRequest* request) {
  const size_t bytes = request->service().size();
  const bool fits = bytes <= kMaxNameBytes;
  auto* watcher = new Watcher(this, fits ? request->service() : "");
  MutexLock lock(&mu_);
  watcher->AssertLocked();
  if (!fits) {
    watcher->Finish({grpc::StatusCode::INVALID_ARGUMENT,
                     absl::StrCat("service has ", bytes,
                                  " bytes; expected at most ", kMaxNameBytes)});
  } else if (watchers_.size() >= kMaxWatchers) {
    watcher->Finish(
        {grpc::StatusCode::RESOURCE_EXHAUSTED,
         absl::StrCat(kMaxWatchers,
                      " watch this server's health already, the most that "
                      "may; ask with Check, or try again later")});
  } else {
    watchers_.insert(watcher);
    watcher->Update();
  }
  return watcher;
}

}  // namespace flotilla
