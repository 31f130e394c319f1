#ifndef FLOTILLA_SERVICES_ENV_CONFORMANCE_CONFORMANCE_H_
#define FLOTILLA_SERVICES_ENV_CONFORMANCE_CONFORMANCE_H_

#include <grpcpp/channel.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "flotilla/v1/config.pb.h"
#include "services/env/conformance/findings.h"

namespace flotilla {

struct ConformanceOptions {
  std::shared_ptr<grpc::Channel> channel;  // to the server
  std::string env_id;
  v1::EnvOptions options = {};
  int num_envs = 4;  // an even number: they are played in two groups
  int steps = 64;    // of each stream that is compared with others
  absl::Duration timeout = absl::Seconds(10);  // of every wait
  // The server's own limit for a hello or a start, if that is to be waited for.
  absl::Duration hello_limit = absl::ZeroDuration();
  // Asks the server to shut down, at the very end; null: that is not checked.
  std::function<void()> shut_down = nullptr;
};

// Plays the server as a learner would, and as none should, and says for every
// sentence of proto/flotilla/v1/env.proto whether the server keeps it. Actions
// are drawn at random. About 30 streams, one after another, but for those that
// compete for the seat; nobody else may play meanwhile.
//
// Blocks; a server that does not answer costs a timeout at most for each thing
// asked, and most is not asked of one that hangs. What a server sends is checked
// before it is used: nothing of it can do more than fail a sentence.
Findings CheckConformance(const ConformanceOptions& options);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_CONFORMANCE_CONFORMANCE_H_
