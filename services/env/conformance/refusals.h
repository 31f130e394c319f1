#ifndef FLOTILLA_SERVICES_ENV_CONFORMANCE_REFUSALS_H_
#define FLOTILLA_SERVICES_ENV_CONFORMANCE_REFUSALS_H_

#include "services/env/conformance/player.h"

namespace flotilla {

// What a server has to refuse, and how: hellos, and messages out of turn.
// `spec` is what the welcome said.
void CheckHelloRefusals(Exam* exam, const v1::EnvSpec& spec);

// Actions that do not fit, each on a stream of its own.
void CheckActionRefusals(Exam* exam);

// Whether the stream of `probe` ends with `code` next; reports it for
// `sentence`. `what` was done. With `name`, the status has to name it.
bool ExpectRefusal(Exam* exam, Probe* probe, Sentence sentence,
                   const std::string& what, absl::StatusCode code,
                   const std::string& name = "");

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_CONFORMANCE_REFUSALS_H_
