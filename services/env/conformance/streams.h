#ifndef FLOTILLA_SERVICES_ENV_CONFORMANCE_STREAMS_H_
#define FLOTILLA_SERVICES_ENV_CONFORMANCE_STREAMS_H_

#include <optional>

#include "services/env/conformance/player.h"

namespace flotilla {

// Plays the first stream, and so checks every step of it. Returns the
// specification; nullopt if there was no welcome to go by.
std::optional<v1::EnvSpec> CheckFirstStream(Exam* exam);

// Plays whole streams that differ in one thing each and compares them: the same
// again, other actions, other groups, other seeds, shared memory. `spec` is the
// first stream's.
void CheckStreams(Exam* exam, const v1::EnvSpec& spec);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_CONFORMANCE_STREAMS_H_
