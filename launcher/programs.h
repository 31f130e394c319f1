#ifndef FLOTILLA_LAUNCHER_PROGRAMS_H_
#define FLOTILLA_LAUNCHER_PROGRAMS_H_

#include <string>

#include "absl/status/statusor.h"

namespace flotilla {

// The path of one of our programs: beside this one, or in
// FLOTILLA_PROGRAM_FOLDER where that is set.
// Errors: kNotFound, with the command that builds it.
absl::StatusOr<std::string> FindProgram(const std::string& name);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_PROGRAMS_H_
