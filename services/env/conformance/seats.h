#ifndef FLOTILLA_SERVICES_ENV_CONFORMANCE_SEATS_H_
#define FLOTILLA_SERVICES_ENV_CONFORMANCE_SEATS_H_

#include "absl/status/statusor.h"
#include "flotilla/v1/env.pb.h"
#include "services/env/conformance/player.h"

namespace flotilla {

// Errors: how the call ended, within the exam's timeout.
absl::StatusOr<v1::GetSpecResponse> GetSpec(const Exam& exam,
                                            const v1::GetSpecRequest& request);

// Who may play when, and how streams end: another learner, a newer incarnation,
// a half-close, a cancelled stream, and what GetSpec says of it.
void CheckSeats(Exam* exam);

// GetSpec of an environment that nobody plays, whose welcome had `spec`.
void CheckGetSpec(Exam* exam, const v1::EnvSpec& spec);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_CONFORMANCE_SEATS_H_
