#ifndef FLOTILLA_LAUNCHER_PYTHON_PROGRAM_H_
#define FLOTILLA_LAUNCHER_PYTHON_PROGRAM_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace flotilla {

// launcher/python/flotilla_watch with `arguments`, in the Python that
// FLOTILLA_PYTHON names, else python3 of PATH. What argv[0] names exists.
// Errors: kFailedPrecondition, saying what helps, without Python or the
// package.
absl::StatusOr<std::vector<std::string>> WatchCommand(
    const std::vector<std::string>& arguments);

// The same of launcher/python/flotilla.
absl::StatusOr<std::vector<std::string>> PackageCommand(
    const std::vector<std::string>& arguments);

// The same of launcher/python/flotilla_video.
absl::StatusOr<std::vector<std::string>> VideoCommand(
    const std::vector<std::string>& arguments);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_PYTHON_PROGRAM_H_
