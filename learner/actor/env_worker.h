#ifndef FLOTILLA_LEARNER_ACTOR_ENV_WORKER_H_
#define FLOTILLA_LEARNER_ACTOR_ENV_WORKER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/env.pb.h"
#include "services/base/mutex.h"
#include "services/base/subprocess.h"
#include "services/coordinator/coordinator_client.h"
#include "services/env/dial_server.h"
#include "services/env/env_stream.h"

namespace flotilla {

// What all env workers of a learner have in common.
struct EnvWorkerOptions {
  v1::EnvConfig env;
  uint64_t seed = 1;
  std::string learner_id;
  std::string run;             // its name, for servers that others know too
  std::string log_folder;      // env_NAME.log; "": inherited
  std::string name;            // "rank_0", "evaluation"
  RpcCredentials credentials;  // for ours, and those that are leased
  RpcCredentials server_credentials;  // for env.server, where that runs already
  int threads = 1;                    // that step rows, per worker
  absl::Duration ring_spin = absl::ZeroDuration();  // of EnvStreamOptions
  // Leases env.remote_workers; borrowed. Null where there are none.
  CoordinatorClient* coordinator = nullptr;
  // Where those of them come to that dial; borrowed. Null: none are leased.
  DialServer* dial = nullptr;
  // How long to wait for the first of them where no worker is local.
  absl::Duration remote_timeout = absl::Minutes(10);
};

// Servers on other hosts that are not to be leased for a while. Workers of one
// pool share it: one that waits does not lease what another has just dropped.
//
// Thread-safe.
class DroppedServers {
 public:
  void Drop(const std::string& id, absl::Time until);

  // Ids of those that are still dropped; the others are forgotten.
  std::vector<std::string> At(absl::Time now);

 private:
  struct Dropped {
    std::string id;
    absl::Time until;
  };
  Mutex mu_;
  std::vector<Dropped> dropped_ ABSL_GUARDED_BY(mu_);
};

// One env worker that is up: its stream and, if it is a local one, its process.
struct EnvWorker {
  std::unique_ptr<Subprocess> process;  // null: others started it
  std::unique_ptr<EnvStream> stream;
  uint64_t incarnation = 0;  // of its hello
  std::string address;
  std::string host;       // of a leased server
  std::string remote_id;  // of a leased server, to be released
};

// Starts flotilla-envserver, or the program of env.server, on a unix socket of
// its own and plays `rows` environments on it in `groups` groups; or plays them
// on the server of env.server that runs already. Blocks until it has shaken
// hands; its reset batches are still to be received.
// Errors: those of StartEnvProgram; kCancelled when `stop` is requested;
// kDeadlineExceeded if a running server does not come within
// env.reset_timeout_seconds; whatever the server refuses with. What env.server
// named is named.
absl::StatusOr<EnvWorker> StartEnvWorker(const EnvWorkerOptions& options,
                                         uint64_t worker_id,
                                         uint64_t incarnation, int rows,
                                         int groups, std::stop_token stop);

// The same on a server of another host, leased from options.coordinator, that
// is not in `dropped` by then; first on `leased`, if that is given. Blocks until
// there is one that takes us. `incarnation` is asked for a newer one at each
// attempt: a server that has not seen the end of the last one refuses it again.
// Errors: kCancelled when `stop` is requested.
absl::StatusOr<EnvWorker> LeaseEnvWorker(
    const EnvWorkerOptions& options, DroppedServers* dropped,
    uint64_t worker_id, absl::FunctionRef<uint64_t()> incarnation, int rows,
    int groups, std::stop_token stop,
    std::optional<v1::Member> leased = std::nullopt);

// env.retry_wait_seconds as flotilla-envserver takes it: whole milliseconds, at
// least 1 unless there is no wait, and no more than its flag holds (24 days).
int RetryWaitMs(double seconds);

// Sleeps for `delay` unless `stop` comes first.
void SleepUnless(std::stop_token stop, absl::Duration delay);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ACTOR_ENV_WORKER_H_
