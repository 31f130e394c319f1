#ifndef FLOTILLA_LAUNCHER_PROGRAMS_H_
#define FLOTILLA_LAUNCHER_PROGRAMS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace flotilla {

// The path of one of our programs: beside this one, or in
// FLOTILLA_PROGRAM_FOLDER where that is set.
// Errors: kNotFound, with the command that builds it.
absl::StatusOr<std::string> FindProgram(const std::string& name);

// Whether pip installed these programs, from a wheel.
bool OfWheel();

// The command that mends an installation which lacks what its programs need: in a
// checkout, or of a wheel.
std::string MendCommand();

// Makes this process `command`, whose first word is a path. Returns only if that
// fails: kInternal.
absl::Status Become(const std::vector<std::string>& command);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_PROGRAMS_H_
