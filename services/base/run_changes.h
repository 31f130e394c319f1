#ifndef FLOTILLA_SERVICES_BASE_RUN_CHANGES_H_
#define FLOTILLA_SERVICES_BASE_RUN_CHANGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/coordinator.pb.h"

// What one run changed in flight, as its ranks agreed on it and as RUN/changes.textproto
// keeps it.

namespace flotilla {

// RUN/changes.textproto; none if there is no such file.
// Errors: kDataLoss, naming it, if it is no list of changes.
absl::StatusOr<v1::Changes> ReadChanges(const std::string& path);
// Errors: of the write.
absl::Status WriteChanges(const std::string& path, const v1::Changes& changes);

// "path=value" of each field.
std::vector<std::string> OverridesOf(const v1::Change& change);

// Whether `update` is made with it: it was not refused, and has begun.
bool HoldsAt(const v1::Change& change, int64_t update);

// What the configuration that a run `began` with has become for the update number
// `update`. What does not fit any more, because a resumed run was given another
// configuration, is left out.
v1::RunConfig ConfigAt(const v1::RunConfig& began, const v1::Changes& changes,
                       int64_t update);

// Without what changes any of the fields at `paths`.
v1::Changes WithoutFields(const v1::Changes& changes,
                          const std::vector<std::string>& paths);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_RUN_CHANGES_H_
