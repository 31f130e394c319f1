#ifndef FLOTILLA_LAUNCHER_PROGRAMS_H_
#define FLOTILLA_LAUNCHER_PROGRAMS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// The path of one of our programs: beside this one, or in
// FLOTILLA_PROGRAM_FOLDER where that is set.
// Errors: kNotFound, with the command that builds it.
absl::StatusOr<std::string> FindProgram(const std::string& name);

// The flags that hand `credentials` on to one of our programs, with absolute
// paths.
std::vector<std::string> CredentialFlags(const RpcCredentials& credentials);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_PROGRAMS_H_
