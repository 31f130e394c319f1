#ifndef FLOTILLA_TESTS_SERVICES_COORDINATOR_COORDINATOR_FIXTURE_H_
#define FLOTILLA_TESTS_SERVICES_COORDINATOR_COORDINATOR_FIXTURE_H_

#include <glog/logging.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "flotilla/v1/coordinator.grpc.pb.h"
#include "services/base/steady_now.h"
#include "services/coordinator/coordinator_service.h"
#include "services/coordinator/member_metadata.h"
#include "services/rpc/grpc_status.h"
#include "tests/testing/in_process_server.h"

namespace flotilla {

// Of every member, where it does not matter.
inline constexpr char kTestSecret[] = "a secret that everybody here shares";

inline CallMetadata TestMember(int local = 0) {
  return MemberMetadata(absl::StrCat("learner/0/", local), kTestSecret);
}

// A coordinator over real gRPC, in this process. Heartbeats are fast, so that
// tests are.
class TestCoordinator {
 public:
  explicit TestCoordinator(const CoordinatorServiceOptions& options,
                           const std::string& address = "127.0.0.1:0",
                           const RpcCredentials& credentials = {}) {
    auto service = CoordinatorService::Make(options);
    CHECK(service.ok()) << service.status();
    service_ = *std::move(service);
    server_ = std::make_unique<InProcessServer>(
        std::vector<RpcServerOptions::NamedService>{
            {v1::CoordinatorService::service_full_name(), service_.get()}},
        [this] { service_->Shutdown(); }, address, credentials);
    CHECK(service_->Start().ok());
  }

  // Gone without a word, as after kill -9.
  ~TestCoordinator() { server_.reset(); }

  static CoordinatorServiceOptions Options(int min, int max) {
    CoordinatorServiceOptions options;
    options.roster.min_learners = min;
    options.roster.max_learners = max;
    options.roster.heartbeat = absl::Milliseconds(100);
    options.roster.dead_after = absl::Seconds(2);
    options.roster.last_call = absl::Milliseconds(500);
    return options;
  }

  const std::string& address() const { return server_->address(); }
  CoordinatorService* service() { return service_.get(); }
  RpcServer* server() { return server_->server(); }

  // Whose calls come in the name of learner `local`.
  std::unique_ptr<v1::CoordinatorService::Stub> Stub(int local = 0) const {
    return v1::CoordinatorService::NewStub(server_->Channel(TestMember(local)));
  }

 private:
  std::unique_ptr<CoordinatorService> service_;
  std::unique_ptr<InProcessServer> server_;
};

inline v1::Member TestLearner(int local, uint64_t incarnation = 1) {
  v1::Member member;
  member.set_id(absl::StrCat("learner/0/", local));
  member.set_incarnation(incarnation);
  member.set_role(v1::LEARNER);
  member.set_host("here");
  member.set_pid(1000 + local);
  member.set_local_rank(local);
  member.set_config_digest("abc");
  return member;
}

// Calls `method` of `stub` with a deadline; returns status and response.
template <typename Request, typename Response>
absl::StatusOr<Response> Call(
    v1::CoordinatorService::Stub* stub,
    grpc::Status (v1::CoordinatorService::Stub::*method)(grpc::ClientContext*,
                                                         const Request&,
                                                         Response*),
    const Request& request, absl::Duration timeout = absl::Seconds(60)) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoMilliseconds(timeout));
  Response response;
  const absl::Status status =
      FromGrpc((stub->*method)(&context, request, &response));
  if (!status.ok()) return status;
  return response;
}

// Looks again until `condition` holds; false after a minute. For what happens
// on other threads and has no other sign.
inline bool Eventually(const std::function<bool()>& condition) {
  const absl::Time deadline = SteadyNow() + absl::Minutes(1);
  while (SteadyNow() < deadline) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_SERVICES_COORDINATOR_COORDINATOR_FIXTURE_H_
