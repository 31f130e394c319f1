#include "services/coordinator/coordinator_client.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "flotilla/v1/coordinator.grpc.pb.h"
#include "services/base/mutex.h"
#include "services/base/printable.h"
#include "services/base/secret.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"
#include "services/base/version.h"
#include "services/coordinator/member_metadata.h"
#include "services/coordinator/membership.h"
#include "services/coordinator/unary_call.h"
#include "services/rpc/channel.h"
#include "services/rpc/refusal.h"

namespace flotilla {
namespace {

using Stub = v1::CoordinatorService::Stub;

// The one deadline of calls that do not wait.
constexpr absl::Duration kShortDeadline = absl::Seconds(10);
// Longer than what the server was asked to wait, for its answer to come.
constexpr absl::Duration kSlack = absl::Seconds(1);

// When a coordinator that does not answer is asked why.
constexpr absl::Duration kLookAfter = absl::Seconds(1);

int64_t RemainingMs(absl::Time deadline) {
  return std::max<int64_t>(absl::ToInt64Milliseconds(deadline - SteadyNow()),
                           0);
}

class Client final : public CoordinatorClient {
 public:
  Client(const std::string& address, const RpcCredentials& credentials,
         const v1::Member& self, const std::string& secret,
         std::shared_ptr<grpc::Channel> channel,
         const v1::RegisterResponse& registered)
      : run_id_(registered.run_id()),
        membership_(address, credentials, self, secret, std::move(channel),
                    registered) {}

  void SetLayoutDigest(const std::string& digest) override {
    MutexLock lock(&mu_);
    layout_digest_ = digest;
  }

  absl::StatusOr<v1::Assignment> JoinGeneration(
      uint64_t last_committed_update, bool has_state,
      absl::Duration timeout) override {
    v1::JoinGenerationRequest request;
    request.set_member_id(self().id());
    request.set_incarnation(self().incarnation());
    request.set_last_committed_update(last_committed_update);
    request.set_has_state(has_state);
    request.set_after_generation(membership_.LeaveGeneration());
    {
      MutexLock lock(&mu_);
      request.set_layout_digest(layout_digest_);
    }
    v1::Assignment assignment;
    const absl::Time deadline = SteadyNow() + timeout;
    RETURN_IF_ERROR(Waiting(&Stub::JoinGeneration, 0, &request, deadline,
                            "no generation has formed", &assignment));
    membership_.EnterGeneration(assignment.generation());
    return assignment;
  }

  std::stop_token Fence(uint64_t generation) override {
    return membership_.Fence(generation);
  }

  absl::Status ReportFailure(uint64_t generation,
                             const std::string& reason) override {
    v1::ReportFailureRequest request;
    request.set_generation(generation);
    request.set_member_id(self().id());
    request.set_reason(PrintableText(reason));
    v1::ReportFailureResponse response;
    return Short(&Stub::ReportFailure, request, &response);
  }

  absl::Status Set(uint64_t generation, const std::string& key,
                   const std::string& value) override {
    v1::KvSetRequest request;
    request.set_generation(generation);
    request.set_key(key);
    request.set_value(value);
    v1::KvSetResponse response;
    return Short(&Stub::KvSet, request, &response);
  }

  absl::StatusOr<std::string> Get(uint64_t generation, const std::string& key,
                                  absl::Duration timeout) override {
    v1::KvGetRequest request;
    request.set_generation(generation);
    request.set_key(key);
    v1::KvGetResponse response;
    RETURN_IF_ERROR(
        Waiting(&Stub::KvGet, generation, &request, SteadyNow() + timeout,
                absl::StrCat("key \"", key, "\" did not come"), &response));
    return std::move(*response.mutable_value());
  }

  absl::Status Wait(uint64_t generation, const std::vector<std::string>& keys,
                    absl::Duration timeout) override {
    if (keys.empty()) return absl::OkStatus();
    v1::KvWaitRequest request;
    request.set_generation(generation);
    request.mutable_key()->Assign(keys.begin(), keys.end());
    v1::KvWaitResponse response;
    return Waiting(&Stub::KvWait, generation, &request, SteadyNow() + timeout,
                   absl::StrCat("keys \"", keys.front(), "\"... did not come"),
                   &response);
  }

  // Sent once: after a loss nobody knows whether it was counted.
  absl::StatusOr<int64_t> Add(uint64_t generation, const std::string& key,
                              int64_t amount) override {
    v1::KvAddRequest request;
    request.set_generation(generation);
    request.set_key(key);
    request.set_amount(amount);
    v1::KvAddResponse response;
    RETURN_IF_ERROR(Explained(CallOnce(membership_.stub().get(), &Stub::KvAdd,
                                       request, kShortDeadline,
                                       /*wait_for_ready=*/true, &response)));
    return response.value();
  }

  absl::StatusOr<std::string> CompareSet(uint64_t generation,
                                         const std::string& key,
                                         const std::string& expected,
                                         const std::string& desired) override {
    v1::KvCompareSetRequest request;
    request.set_generation(generation);
    request.set_key(key);
    request.set_expected(expected);
    request.set_desired(desired);
    v1::KvCompareSetResponse response;
    RETURN_IF_ERROR(Short(&Stub::KvCompareSet, request, &response));
    return std::move(*response.mutable_value());
  }

  absl::StatusOr<bool> Check(uint64_t generation,
                             const std::vector<std::string>& keys) override {
    v1::KvCheckRequest request;
    request.set_generation(generation);
    request.mutable_key()->Assign(keys.begin(), keys.end());
    v1::KvCheckResponse response;
    RETURN_IF_ERROR(Short(&Stub::KvCheck, request, &response));
    return response.all_present();
  }

  absl::StatusOr<bool> Delete(uint64_t generation,
                              const std::string& key) override {
    v1::KvDeleteRequest request;
    request.set_generation(generation);
    request.set_key(key);
    v1::KvDeleteResponse response;
    RETURN_IF_ERROR(Short(&Stub::KvDelete, request, &response));
    return response.deleted();
  }

  absl::StatusOr<int64_t> Count(uint64_t generation) override {
    v1::KvCountRequest request;
    request.set_generation(generation);
    v1::KvCountResponse response;
    RETURN_IF_ERROR(Short(&Stub::KvCount, request, &response));
    return response.count();
  }

  void Report(const v1::Heartbeat& progress) override {
    membership_.Report(progress);
  }

  v1::Command Latest() const override { return membership_.Latest(); }

  std::stop_token RunStopped() const override {
    return membership_.RunStopped();
  }

  absl::Status ReportEvaluation(const v1::Evaluation& evaluation) override {
    v1::ReportEvaluationRequest request;
    request.set_member_id(self().id());
    *request.mutable_evaluation() = evaluation;
    membership_.Remember(request);
    v1::ReportEvaluationResponse response;
    return Short(&Stub::ReportEvaluation, request, &response);
  }

  // Sent once: news of a moment, which nobody should wait for.
  absl::Status ReportCollected(uint64_t generation, int64_t update,
                               double fraction) override {
    v1::ReportCollectedRequest request;
    request.set_generation(generation);
    request.set_member_id(self().id());
    request.set_update(update);
    request.set_fraction(fraction);
    v1::ReportCollectedResponse response;
    return Explained(CallOnce(membership_.stub().get(), &Stub::ReportCollected,
                              request, kAttempt, /*wait_for_ready=*/false,
                              &response));
  }

  absl::StatusOr<std::vector<v1::Member>> LeaseEnvServers(
      const std::string& env_id, int count, const std::string& dial_address,
      const std::string& lease_id) override {
    v1::LeaseEnvServersRequest request;
    request.set_lease_id(lease_id);
    request.set_dial_address(dial_address);
    request.set_member_id(self().id());
    request.set_env_id(env_id);
    request.set_count(count);
    v1::LeaseEnvServersResponse response;
    RETURN_IF_ERROR(Short(&Stub::LeaseEnvServers, request, &response));
    return std::vector<v1::Member>(response.env_server().begin(),
                                   response.env_server().end());
  }

  absl::Status ReleaseEnvServers(
      const std::vector<std::string>& env_server_ids) override {
    v1::ReleaseEnvServersRequest request;
    request.set_member_id(self().id());
    request.mutable_env_server_id()->Assign(env_server_ids.begin(),
                                            env_server_ids.end());
    v1::ReleaseEnvServersResponse response;
    return Short(&Stub::ReleaseEnvServers, request, &response);
  }

  absl::Status Leave(const std::string& reason) override {
    membership_.Quit();
    v1::LeaveRequest request;
    request.set_member_id(self().id());
    request.set_incarnation(self().incarnation());
    request.set_reason(PrintableText(reason));
    v1::LeaveResponse response;
    return Short(&Stub::Leave, request, &response);
  }

  absl::Status StopRun(const std::string& reason, bool preempted) override {
    v1::StopRequest request;
    request.set_reason(PrintableText(reason));
    request.set_preempted(preempted);
    v1::StopResponse response;
    return Short(&Stub::Stop, request, &response);
  }

  absl::Status CloseRun(const std::string& status) override {
    v1::CloseRunRequest request;
    request.set_member_id(self().id());
    request.set_status(status);
    v1::CloseRunResponse response;
    return Short(&Stub::CloseRun, request, &response);
  }

  absl::StatusOr<v1::Status> GetStatus() override {
    v1::Status response;
    RETURN_IF_ERROR(Short(&Stub::GetStatus, v1::GetStatusRequest(), &response));
    return response;
  }

  std::string run_id() const override { return run_id_; }

 private:
  const v1::Member& self() const { return membership_.self(); }

  // A call that does not wait, tried again while the coordinator is lost or
  // does not know us (again).
  template <typename Request, typename Response>
  absl::Status Short(CoordinatorMethod<Request, Response> method,
                     const Request& request, Response* response) {
    const absl::Time deadline = SteadyNow() + kShortDeadline;
    absl::Duration pause = kFirstPause;
    while (true) {
      const absl::Duration left = deadline - SteadyNow();
      const absl::Status status = CallOnce(membership_.stub().get(), method,
                                           request, std::min(left, kAttempt),
                                           /*wait_for_ready=*/false, response);
      const bool again =
          IsLoss(status) || membership_.NeedsRegistration(status);
      if (!again || SteadyNow() + pause >= deadline ||
          !membership_.Pause(pause)) {
        return Explained(status);
      }
      pause = NextPause(pause);
    }
  }

  // A call that waits on the server, until `deadline`, and that goes on waiting
  // with the next coordinator if this one is lost. Ends early if `generation`
  // (0: none) is fenced.
  template <typename Request, typename Response>
  absl::Status Waiting(CoordinatorMethod<Request, Response> method,
                       uint64_t generation, Request* request,
                       absl::Time deadline, const std::string& what,
                       Response* response) {
    absl::Duration pause = kFirstPause;
    while (true) {
      const int64_t left_ms = RemainingMs(deadline);
      request->set_timeout_ms(left_ms);
      const absl::Status status =
          CallOnce(membership_.stub().get(), method, *request,
                   absl::Milliseconds(left_ms) + kSlack,
                   /*wait_for_ready=*/false, response);
      const bool again =
          IsLoss(status) || membership_.NeedsRegistration(status);
      if (!again) return status;
      RETURN_IF_ERROR(membership_.CheckOpen(generation));
      if (SteadyNow() + pause >= deadline || !membership_.Pause(pause)) {
        if (absl::IsDeadlineExceeded(status)) return status;
        return absl::DeadlineExceededError(
            absl::StrCat(what, ": ", Explained(status).message()));
      }
      pause = NextPause(pause);
    }
  }

  absl::Status Explained(const absl::Status& status) const {
    if (!IsLoss(status)) return status;
    return absl::UnavailableError(
        absl::StrCat("the coordinator at ", membership_.address(),
                     " does not answer: ", status.message()));
  }

  const std::string run_id_;
  Membership membership_;
  Mutex mu_;
  std::string layout_digest_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorClient>> JoinRun(
    const std::string& address, const v1::Member& self,
    const RpcCredentials& credentials, absl::Duration timeout,
    const std::string& given_secret) {
  const std::string secret = given_secret.empty() ? DrawSecret() : given_secret;
  ASSIGN_OR_RETURN(
      auto channel,
      MakeChannel(address, credentials, MemberMetadata(self.id(), secret)));
  const auto stub = v1::CoordinatorService::NewStub(channel);
  v1::RegisterRequest request;
  *request.mutable_member() = self;
  if (self.version().empty()) request.mutable_member()->set_version(Version());

  const absl::Time deadline = SteadyNow() + timeout;
  const absl::Time look_at = SteadyNow() + std::min(timeout / 2, kLookAfter);
  bool looked = false;
  absl::Duration pause = kFirstPause;
  while (true) {
    v1::RegisterResponse response;
    const absl::Duration left = deadline - SteadyNow();
    const absl::Status status =
        CallOnce(stub.get(), &Stub::Register, request, std::min(left, kAttempt),
                 /*wait_for_ready=*/false, &response);
    if (status.ok()) {
      return std::make_unique<Client>(address, credentials, request.member(),
                                      secret, channel, response);
    }
    if (absl::IsUnimplemented(status)) {
      return absl::FailedPreconditionError(
          absl::StrCat("what listens at ", address, " is no coordinator"));
    }
    if (!IsLoss(status)) {
      return ExplainRefusal(status, "the coordinator", address, credentials);
    }
    // Nothing that goes away by itself: who listens does not want to be talked
    // to like this.
    if (!looked && SteadyNow() >= look_at) {
      looked = true;
      const absl::Status seen =
          ExplainRefusal(status, "the coordinator", address, credentials);
      if (!IsLoss(seen)) return seen;
    }
    if (SteadyNow() + pause >= deadline) {
      return absl::UnavailableError(absl::StrCat(
          "no coordinator answers at ", address, " within ",
          absl::FormatDuration(timeout), " (", status.message(),
          "): is it running there, and are address and TLS files right? "
          "`flotilla coordinator --listen ",
          address, "` starts one"));
    }
    PauseBetweenCalls(channel.get(), pause);
    pause = NextPause(pause);
  }
}

}  // namespace flotilla
