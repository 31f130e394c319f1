#ifndef FLOTILLA_SERVICES_COORDINATOR_COORDINATOR_CLIENT_H_
#define FLOTILLA_SERVICES_COORDINATOR_COORDINATOR_CLIENT_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/coordinator.pb.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// This process's seat in the run. Sends heartbeats from a thread of its own, so
// a busy caller is not taken for a dead one, and reconnects (registering again)
// when the coordinator comes back: losing it stops nothing.
//
// Thread-safe. Calls with a timeout block that long at most; the others block
// for one short deadline (10 s).
class CoordinatorClient {
 public:
  // Stops the heartbeats. Does not say goodbye: see Leave.
  virtual ~CoordinatorClient() = default;

  // What JoinGeneration says from here on of what this process trains:
  // JoinGenerationRequest.layout_digest. Never blocks.
  virtual void SetLayoutDigest(const std::string& digest) = 0;

  // Blocks until the next generation forms with this process in it.
  // `last_committed_update` is that of the state it holds, if `has_state`.
  // Errors: kDeadlineExceeded; kAborted if the run was told to stop and this
  // process has nothing to save; kFailedPrecondition if it does not fit the
  // run, as with another layout than those who hold its state.
  virtual absl::StatusOr<v1::Assignment> JoinGeneration(
      uint64_t last_committed_update, bool has_state,
      absl::Duration timeout) = 0;

  // Stops when `generation` is fenced, whoever fenced it. A lost coordinator
  // fences nothing: training goes on without it.
  virtual std::stop_token Fence(uint64_t generation) = 0;

  // Fences `generation` for everyone. Idempotent.
  virtual absl::Status ReportFailure(uint64_t generation,
                                     const std::string& reason) = 0;

  // Small values private to `generation`; see coordinator.proto. Get and Wait
  // block until the keys are there.
  // Errors: kAborted once it is fenced; kDeadlineExceeded names the key.
  virtual absl::Status Set(uint64_t generation, const std::string& key,
                           const std::string& value) = 0;
  virtual absl::StatusOr<std::string> Get(uint64_t generation,
                                          const std::string& key,
                                          absl::Duration timeout) = 0;
  virtual absl::Status Wait(uint64_t generation,
                            const std::vector<std::string>& keys,
                            absl::Duration timeout) = 0;
  virtual absl::StatusOr<int64_t> Add(uint64_t generation,
                                      const std::string& key,
                                      int64_t amount) = 0;
  // Returns what is there afterwards. Empty `expected`: only if absent.
  virtual absl::StatusOr<std::string> CompareSet(
      uint64_t generation, const std::string& key, const std::string& expected,
      const std::string& desired) = 0;
  virtual absl::StatusOr<bool> Check(uint64_t generation,
                                     const std::vector<std::string>& keys) = 0;
  virtual absl::StatusOr<bool> Delete(uint64_t generation,
                                      const std::string& key) = 0;
  virtual absl::StatusOr<int64_t> Count(uint64_t generation) = 0;

  // What the next heartbeats say: phase, update, steps, env workers. Identity
  // and generation are filled in. Never blocks.
  virtual void Report(const v1::Heartbeat& progress) = 0;

  // The newest command: sticky stop flags and evaluation, changes, preemption. Never
  // blocks; empty before the first one arrives.
  virtual v1::Command Latest() const = 0;

  // Stops when the run is told to stop (flotilla stop). Never un-stops.
  virtual std::stop_token RunStopped() const = 0;

  virtual absl::Status ReportEvaluation(const v1::Evaluation& evaluation) = 0;
  virtual absl::Status ReportCollected(uint64_t generation, int64_t update,
                                       double fraction) = 0;
  // Those that dial (Member.dials) only with a `dial_address`, where they then
  // come to. Who got no answer asks with the same `lease_id` again, for what was
  // leased then; another request has another one.
  virtual absl::StatusOr<std::vector<v1::Member>> LeaseEnvServers(
      const std::string& env_id, int count, const std::string& dial_address,
      const std::string& lease_id) = 0;
  virtual absl::Status ReleaseEnvServers(
      const std::vector<std::string>& env_server_ids) = 0;

  // Leaves the run: not a failure.
  virtual absl::Status Leave(const std::string& reason) = 0;
  // Tells everyone to save and finish (flotilla stop); if `preempted`, because the
  // run is to be resumed elsewhere.
  virtual absl::Status StopRun(const std::string& reason, bool preempted) = 0;
  // Ends the run for everyone who would still join.
  virtual absl::Status CloseRun(const std::string& status) = 0;

  virtual absl::StatusOr<v1::Status> GetStatus() = 0;

  // As the coordinator gave it.
  virtual std::string run_id() const = 0;
};

// Registers as `self` with the coordinator at `address` and starts heartbeats.
// Retries until `timeout` while nothing listens there.
//
// `secret` is that of the member's slot: whoever replaces this process as
// `self.id` has to have it too. "": one of this process's own.
//
// Errors: kUnavailable, naming address and remedy, after `timeout`; whatever
// Register refuses with, at once: kAborted if the run is over.
absl::StatusOr<std::unique_ptr<CoordinatorClient>> JoinRun(
    const std::string& address, const v1::Member& self,
    const RpcCredentials& credentials, absl::Duration timeout,
    const std::string& secret = "");

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_COORDINATOR_CLIENT_H_
