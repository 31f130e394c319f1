#ifndef FLOTILLA_LAUNCHER_ENV_CHECK_H_
#define FLOTILLA_LAUNCHER_ENV_CHECK_H_

#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/env.pb.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// Asks whoever makes a run's environments (env.server) what it can host: `env.id`
// with `env.options`, or all it knows if `env.id` is empty. So a missing ROM or
// package is known before anything else starts. Programs are started for this
// question alone; `credentials` are for a server that runs already.
// Errors: the server's own, kNotFound and kInvalidArgument among them; those of
// StartEnvProgram; kUnavailable if nothing serves at env.server; kCancelled when
// `stop` is requested. All name what env.server names.
absl::StatusOr<v1::GetSpecResponse> AskEnvServer(
    const v1::EnvConfig& env, const RpcCredentials& credentials,
    absl::Duration timeout, std::stop_token stop = {});

// The same of our own program.
absl::StatusOr<v1::GetSpecResponse> AskEnvServer(const std::string& env_id,
                                                 const v1::EnvOptions& options,
                                                 absl::Duration timeout,
                                                 std::stop_token stop = {});

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_ENV_CHECK_H_
