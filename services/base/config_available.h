#ifndef FLOTILLA_SERVICES_BASE_CONFIG_AVAILABLE_H_
#define FLOTILLA_SERVICES_BASE_CONFIG_AVAILABLE_H_

#include "absl/status/status.h"
#include "flotilla/v1/config.pb.h"

namespace flotilla {

// The schema describes more than this release can do. Refuses what would
// otherwise be silently ignored; Validate has accepted `config` before.
// Errors: kInvalidArgument, naming the field, its value, and what to use
// instead.
absl::Status CheckAvailable(const v1::RunConfig& config);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_CONFIG_AVAILABLE_H_
