#ifndef FLOTILLA_SERVICES_ENV_CONFORMANCE_SPEC_CHECK_H_
#define FLOTILLA_SERVICES_ENV_CONFORMANCE_SPEC_CHECK_H_

#include "flotilla/v1/env.pb.h"
#include "services/env/conformance/findings.h"

namespace flotilla {

// What env.proto says of a specification, which may be anything that a stranger
// sent. False: leaves are such that no step of theirs could be read.
bool CheckSpec(const v1::EnvSpec& spec, Findings* findings);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_CONFORMANCE_SPEC_CHECK_H_
