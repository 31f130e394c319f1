#ifndef FLOTILLA_SERVICES_BASE_ATOMIC_FILE_H_
#define FLOTILLA_SERVICES_BASE_ATOMIC_FILE_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"

namespace flotilla {

// Makes `path` hold `content`, whole or not at all, whatever is killed when:
// writes beside it, syncs, renames, syncs the folder. Readers see the old file
// or the new one. `mode` is that of the file.
//
// Errors: what the system says (kNotFound, kPermissionDenied,
// kResourceExhausted, ...), naming the path.
absl::Status WriteFileAtomically(const std::string& path,
                                 const std::string& content,
                                 mode_t mode = 0644);

// Makes `path` a symbolic link to `target`, in the place of another one, in the
// same way; beside it means .aside_NAME.PID. Errors: as above.
absl::Status LinkAtomically(const std::string& path, const std::string& target);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_ATOMIC_FILE_H_
