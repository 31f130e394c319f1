#ifndef FLOTILLA_LEARNER_ACTOR_ENV_WORKER_H_
#define FLOTILLA_LEARNER_ACTOR_ENV_WORKER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/env.pb.h"
#include "services/base/subprocess.h"
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
};

// One env worker that is up: its stream and, if it is a local one, its process.
struct EnvWorker {
  std::unique_ptr<Subprocess> process;  // null: a server on another host
  std::unique_ptr<EnvStream> stream;
  std::string address;
  std::string remote_id;  // of a leased server
};

// Starts flotilla-envserver on a unix socket of its own and plays `rows`
// environments on it in `groups` groups. Blocks until it has shaken hands; its
// reset batches are still to be received.
// Errors: kUnavailable if the process ends first, with its exit and its log's
// path; whatever the server refuses with.
absl::StatusOr<EnvWorker> StartLocalEnvWorker(const EnvWorkerOptions& options,
                                              uint64_t worker_id,
                                              uint64_t incarnation, int rows,
                                              int groups);

// The same on a server that runs elsewhere, at `address`.
absl::StatusOr<EnvWorker> ConnectEnvWorker(const EnvWorkerOptions& options,
                                           const std::string& address,
                                           uint64_t worker_id,
                                           uint64_t incarnation, int rows,
                                           int groups);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ACTOR_ENV_WORKER_H_
