#ifndef FLOTILLA_SERVICES_COORDINATOR_MEMBERSHIP_H_
#define FLOTILLA_SERVICES_COORDINATOR_MEMBERSHIP_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "flotilla/v1/coordinator.grpc.pb.h"
#include "services/base/mutex.h"
#include "services/base/steady_now.h"
#include "services/coordinator/session_client.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// Keeps this process a member: one thread sends heartbeats, opens a new session
// when one breaks, connects anew when nothing answers and registers again with
// a coordinator that does not know us; another stops what commands say must
// stop. CoordinatorClient makes its calls beside it.
//
// Thread-safe. Only Pause and the destructor block.
class Membership {
 public:
  using Stub = v1::CoordinatorService::Stub;

  // Of `self`, which has just `registered` through `channel` with `secret`.
  Membership(std::string address, RpcCredentials credentials, v1::Member self,
             std::string secret, std::shared_ptr<grpc::Channel> channel,
             const v1::RegisterResponse& registered);
  // Ends the session. Does not say goodbye.
  ~Membership();

  const std::string& address() const { return address_; }
  const v1::Member& self() const { return self_; }

  // The newest connection.
  std::shared_ptr<Stub> stub() const;

  // This process joins: it is in no generation. Returns its newest, 0 for none.
  uint64_t LeaveGeneration();
  void EnterGeneration(uint64_t generation);

  // Stops when `generation` is fenced, or this process has lost its place.
  std::stop_token Fence(uint64_t generation);

  // OK while `generation` (0: any) is not fenced and nobody took our place.
  absl::Status CheckOpen(uint64_t generation) const;

  // What the next heartbeats say.
  void Report(const v1::Heartbeat& progress);

  // Told to a coordinator that we register with again.
  void Remember(const v1::ReportEvaluationRequest& evaluation);

  v1::Command Latest() const;
  std::stop_token RunStopped() const { return run_stopped_.get_token(); }

  // Sends no more heartbeats: one of them after a goodbye would mean coming
  // back.
  void Quit();

  // Waits for `duration`, or until a connection that was lost is made again.
  // False, at once, if this object is going away or lost its place.
  bool Pause(absl::Duration duration);

  // Whether `status` says that the coordinator forgot us. The heartbeats'
  // thread mends that.
  bool NeedsRegistration(const absl::Status& status);

 private:
  bool IsOver(uint64_t generation) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // The heartbeats' thread.
  void KeepSession();
  std::unique_ptr<SessionClient> OpenSession();
  bool SendHeartbeats(SessionClient* session);
  void AwaitNextBeat();
  void Reconnect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::Heartbeat MakeHeartbeat() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool RegisterIfAsked();
  void TellEvaluationAgain();
  void Evict(const absl::Status& status);
  void OnCommand(const v1::Command& command);
  void OnSessionOver(const absl::Status& status);

  // The alarms' thread.
  void RaiseAlarms();
  bool AlarmsDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<std::stop_source> TakeAlarms() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string address_;
  const RpcCredentials credentials_;
  const v1::Member self_;
  const std::string secret_;
  const absl::Duration heartbeat_;
  // For an answer to a heartbeat. Short enough for another connection before
  // we are taken for dead.
  const absl::Duration patience_;
  std::stop_source run_stopped_;

  mutable Mutex mu_;
  std::condition_variable changed_;
  bool quit_ ABSL_GUARDED_BY(mu_) = false;
  bool left_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> evicted_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Stub> stub_ ABSL_GUARDED_BY(mu_);

  uint64_t generation_ ABSL_GUARDED_BY(mu_) = 0;       // now; 0: joining
  uint64_t last_generation_ ABSL_GUARDED_BY(mu_) = 0;  // the newest ever
  v1::Heartbeat progress_ ABSL_GUARDED_BY(mu_);
  absl::Time reported_at_ ABSL_GUARDED_BY(mu_) = SteadyNow();
  std::optional<v1::ReportEvaluationRequest> evaluation_ ABSL_GUARDED_BY(mu_);
  bool tell_again_ ABSL_GUARDED_BY(mu_) = false;  // of that
  v1::Command latest_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, std::stop_source> fences_ ABSL_GUARDED_BY(mu_);

  bool session_over_ ABSL_GUARDED_BY(mu_) = true;
  bool answered_ ABSL_GUARDED_BY(mu_) = false;  // this session
  absl::Time heard_at_ ABSL_GUARDED_BY(mu_);
  bool register_again_ ABSL_GUARDED_BY(mu_) = false;
  bool beat_now_ ABSL_GUARDED_BY(mu_) = false;

  std::thread beats_;  // last: they use the rest
  std::thread alarms_;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_MEMBERSHIP_H_
