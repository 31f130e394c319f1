#ifndef FLOTILLA_LAUNCHER_ENV_CHECK_H_
#define FLOTILLA_LAUNCHER_ENV_CHECK_H_

#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/env.pb.h"

namespace flotilla {

// Asks a flotilla-envserver, started for this question alone, what it can host:
// `env_id` with `options`, or all it knows if `env_id` is empty. So a missing
// ROM or package is known before anything else starts.
// Errors: the server's own, with its last log line if it died; kCancelled when
// `stop` is requested.
absl::StatusOr<v1::GetSpecResponse> AskEnvServer(const std::string& env_id,
                                                 const v1::EnvOptions& options,
                                                 absl::Duration timeout,
                                                 std::stop_token stop = {});

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_ENV_CHECK_H_
