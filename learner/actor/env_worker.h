#ifndef FLOTILLA_LEARNER_ACTOR_ENV_WORKER_H_
#define FLOTILLA_LEARNER_ACTOR_ENV_WORKER_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/env.pb.h"
#include "services/base/subprocess.h"
#include "services/coordinator/coordinator_client.h"
#include "services/env/env_stream.h"

namespace flotilla {

// What all env workers of a learner have in common.
struct EnvWorkerOptions {
  v1::EnvConfig env;
  uint64_t seed = 1;
  std::string learner_id;
  std::string log_folder;  // env_NAME.log; "": inherited
  std::string name;        // "rank_0", "evaluation"
  RpcCredentials credentials;
  int threads = 1;  // that step rows, per worker
  // Leases env.remote_workers; borrowed. Null where there are none.
  CoordinatorClient* coordinator = nullptr;
  // How long to wait for the first of them where no worker is local.
  absl::Duration remote_timeout = absl::Minutes(10);
};

// One env worker that is up: its stream and, if it is a local one, its process.
struct EnvWorker {
  std::unique_ptr<Subprocess> process;  // null: a server on another host
  std::unique_ptr<EnvStream> stream;
  std::string address;
  std::string host;       // of a leased server
  std::string remote_id;  // of a leased server, to be released
};

// Starts flotilla-envserver on a unix socket of its own and plays `rows`
// environments on it in `groups` groups. Blocks until it has shaken hands; its
// reset batches are still to be received.
// Errors: kUnavailable if the process ends first, with its exit and its log's
// path; kCancelled when `stop` is requested; whatever the server refuses with.
absl::StatusOr<EnvWorker> StartLocalEnvWorker(const EnvWorkerOptions& options,
                                              uint64_t worker_id,
                                              uint64_t incarnation, int rows,
                                              int groups, std::stop_token stop);

// The same on a server of another host, leased from options.coordinator, but
// none of `avoid` (ids). Blocks until there is one that takes us. Errors:
// kCancelled when `stop` is requested.
absl::StatusOr<EnvWorker> LeaseEnvWorker(const EnvWorkerOptions& options,
                                         const std::vector<std::string>& avoid,
                                         uint64_t worker_id,
                                         uint64_t incarnation, int rows,
                                         int groups, std::stop_token stop);

// Sleeps for `delay` unless `stop` comes first.
void SleepUnless(std::stop_token stop, absl::Duration delay);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ACTOR_ENV_WORKER_H_
