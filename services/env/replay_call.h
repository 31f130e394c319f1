#ifndef FLOTILLA_SERVICES_ENV_REPLAY_CALL_H_
#define FLOTILLA_SERVICES_ENV_REPLAY_CALL_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "flotilla/v1/env.pb.h"
#include "services/env/vector_env.h"

namespace flotilla {

// EnvService.Replay, without a network: plays the game of `request` again in an
// environment that `factory` makes, and hands `send` an answer for each reset and
// step, until it returns false. Blocks.
// Errors: those of EnvService.Replay; kCancelled after a false.
absl::Status PlayAgain(
    const VectorEnvFactory& factory, const v1::ReplayRequest& request,
    absl::FunctionRef<bool(const v1::ReplayStep& step)> send);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_REPLAY_CALL_H_
