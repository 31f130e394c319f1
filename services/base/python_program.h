#ifndef FLOTILLA_SERVICES_BASE_PYTHON_PROGRAM_H_
#define FLOTILLA_SERVICES_BASE_PYTHON_PROGRAM_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace flotilla {

// How to run `package`, one of ours in share/flotilla/python beside the programs, or
// where pip put it, in the Python that FLOTILLA_PYTHON names, else python3 of PATH. What argv[0]
// names exists. `who` needs it ("this needs"), and it has to have `modules` ("",
// or " that has ...").
// Errors: kFailedPrecondition, saying what helps, without Python or the package.
absl::StatusOr<std::vector<std::string>> PythonProgram(
    const std::string& package, const std::string& who,
    const std::string& modules = "");

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_PYTHON_PROGRAM_H_
