#ifndef FLOTILLA_SERVICES_COORDINATOR_COORDINATOR_SERVICE_H_
#define FLOTILLA_SERVICES_COORDINATOR_COORDINATOR_SERVICE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/coordinator.grpc.pb.h"
#include "services/base/mutex.h"
#include "services/coordinator/kv_store.h"
#include "services/coordinator/parked_call.h"
#include "services/coordinator/roster.h"
#include "services/coordinator/session_stream.h"
#include "services/coordinator/status_stream.h"

namespace flotilla {

struct CoordinatorServiceOptions {
  RosterOptions roster;  // an empty epoch is made up
  std::string journal;   // path; "": none
};

// Roster and KvStore behind gRPC. Calls that wait are parked, not threads.
//
//   a call changes the roster --> wakes the one thread here, which writes the
//   journal, fails waits on fenced generations, answers who waits to join, and
//   pushes the new command into every session
//
// The same thread moves the clock on, so it also notices who is silent.
//
// Thread-safe. Must outlive its server.
class CoordinatorService final : public v1::CoordinatorService::CallbackService,
                                 private SessionHost {
 public:
  // Takes over from the journal if there is one, but leaves it as it is.
  // Errors: kDataLoss if it does not read back; kFailedPrecondition if it is
  // another run's.
  static absl::StatusOr<std::unique_ptr<CoordinatorService>> Make(
      const CoordinatorServiceOptions& options);

  ~CoordinatorService() override;

  // Begins to act. Call it once, when the server listens: a second coordinator
  // on a taken port must not touch the journal.
  // Errors: what WriteFileAtomically says if a new run's journal cannot be
  // written. One that was taken over may stay as it is: this coordinator then
  // goes on without until it can be, as the one before it did.
  absl::Status Start();

  // Whether it carries on a run that another coordinator began.
  bool takes_over() const { return takes_over_; }

  // Ends all that waits, now and later, with UNAVAILABLE. Idempotent.
  void Shutdown();

  // What people are told.
  v1::Status CurrentStatus();

#define FLOTILLA_UNARY(Name)                                           \
  grpc::ServerUnaryReactor* Name(grpc::CallbackServerContext* context, \
                                 const v1::Name##Request* request,     \
                                 v1::Name##Response* response) override;
  FLOTILLA_UNARY(Register)
  FLOTILLA_UNARY(ReportFailure)
  FLOTILLA_UNARY(Leave)
  FLOTILLA_UNARY(KvSet)
  FLOTILLA_UNARY(KvGet)
  FLOTILLA_UNARY(KvWait)
  FLOTILLA_UNARY(KvAdd)
  FLOTILLA_UNARY(KvCompareSet)
  FLOTILLA_UNARY(KvCheck)
  FLOTILLA_UNARY(KvDelete)
  FLOTILLA_UNARY(KvCount)
  FLOTILLA_UNARY(ReportEvaluation)
  FLOTILLA_UNARY(ReportCollected)
  FLOTILLA_UNARY(LeaseEnvServers)
  FLOTILLA_UNARY(ReleaseEnvServers)
  FLOTILLA_UNARY(CloseRun)
  FLOTILLA_UNARY(Stop)
  FLOTILLA_UNARY(Set)
#undef FLOTILLA_UNARY

  grpc::ServerUnaryReactor* JoinGeneration(
      grpc::CallbackServerContext* context,
      const v1::JoinGenerationRequest* request,
      v1::Assignment* response) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::Status* response) override;
  grpc::ServerBidiReactor<v1::Heartbeat, v1::Command>* Session(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<v1::Status>* WatchStatus(
      grpc::CallbackServerContext* context,
      const v1::WatchStatusRequest* request) override;

 private:
  // A JoinGeneration that waits.
  struct Joiner {
    std::shared_ptr<ParkedCall> call;
    v1::JoinGenerationRequest request;
    v1::Assignment* response;
    uint64_t ticket;
    absl::Time deadline;
  };
  // A Set that waits.
  struct Setter {
    std::shared_ptr<ParkedCall> call;
    v1::SetResponse* response;
    uint64_t ticket;
    absl::Time deadline;
  };
  using Sessions = std::vector<std::shared_ptr<SessionStream>>;

  explicit CoordinatorService(const CoordinatorServiceOptions& options);

  // SessionHost.
  absl::StatusOr<bool> OnHeartbeat(const std::shared_ptr<SessionStream>& stream,
                                   const v1::Heartbeat& heartbeat) override;
  v1::Command NewestCommand(const std::string& member_id) override {
    return roster_.CommandFor(member_id);
  }
  void OnSessionOver(const std::shared_ptr<SessionStream>& stream) override;
  absl::Time Now() override;

  absl::Status CheckKvCaller(const grpc::CallbackServerContext& context,
                             uint64_t generation) const;
  grpc::ServerUnaryReactor* AwaitKeys(
      uint64_t generation, std::vector<std::string> keys, int64_t timeout_ms,
      std::function<void(const std::string&)> fill);

  // The one thread.
  void Wake();
  void Run();
  void Propagate();
  void Tell(const v1::Command& command);
  absl::Status WriteJournal(const RosterState& state);
  void AnswerJoiners();
  void AnswerSetters();
  void DropSilentSessions();
  void SendStatus();
  Sessions AllSessions();
  void EndSession(SessionStream* session);
  void PushTo(const std::string& member_id);

  const CoordinatorServiceOptions options_;
  bool takes_over_ = false;  // constant after Make
  Roster roster_;
  KvStore kv_;
  std::atomic<bool> shut_down_ = false;
  std::atomic<uint64_t> propagated_ = 0;  // command_version

  // The thread's own.
  std::string journal_text_;
  uint64_t journaled_ = 0;  // state_version
  // The newest that could not be, and when that is tried again.
  uint64_t unjournaled_ = 0;
  absl::Time journal_again_ = absl::InfinitePast();
  v1::Command told_;
  absl::Time next_sweep_ = absl::InfinitePast();

  Mutex mu_;
  std::condition_variable woken_;
  bool work_ ABSL_GUARDED_BY(mu_) = false;
  bool quit_ ABSL_GUARDED_BY(mu_) = false;
  std::list<Joiner> joiners_ ABSL_GUARDED_BY(mu_);
  std::list<Setter> setters_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<std::shared_ptr<SessionStream>> sessions_
      ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, std::shared_ptr<SessionStream>> session_of_
      ABSL_GUARDED_BY(mu_);  // by member id
  std::list<std::shared_ptr<StatusStream>> watchers_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;  // last: it uses the rest
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_COORDINATOR_SERVICE_H_
