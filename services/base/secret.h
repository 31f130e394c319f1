#ifndef FLOTILLA_SERVICES_BASE_SECRET_H_
#define FLOTILLA_SERVICES_BASE_SECRET_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Secrets that our programs draw themselves: a run's token, and what proves
// whose slot a member has.

namespace flotilla {

// 256 bits of the system's randomness: 64 lower-case hex digits.
std::string DrawSecret();

// The secret in the file at `path`. Of a file that is open to its group the group's
// rights are taken away, with a warning; another warns of a file system that keeps no
// modes, whose files are taken as they are.
// Errors: kNotFound; kPermissionDenied if anybody may read or write the file, or it is
// another user's; kDataLoss if it holds no secret. All say the remedy.
absl::StatusOr<std::string> ReadSecret(const std::string& path);

// As ReadSecret, of a file (mode 0600) that is made where there is none.
// Errors: those of ReadSecret, and of WriteFileAtomically.
absl::StatusOr<std::string> ReadOrDrawSecret(const std::string& path);

// Compares in a time that depends on the lengths only.
bool EqualInConstantTime(absl::string_view a, absl::string_view b);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_SECRET_H_
