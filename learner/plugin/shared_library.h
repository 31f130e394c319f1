#ifndef FLOTILLA_LEARNER_PLUGIN_SHARED_LIBRARY_H_
#define FLOTILLA_LEARNER_PLUGIN_SHARED_LIBRARY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace flotilla {

// Whether a library stamped `theirs` may be loaded by a program stamped `ours`
// (build_stamp.h). Errors: kFailedPrecondition, naming both and what differs.
absl::Status CompareStamps(const std::string& theirs, const std::string& ours);

// The function `symbol` of the shared library `path`, which stays loaded for as
// long as the process runs. `title` names it in messages: "model.plugin
// "libmine.so"". No code of a library that does not fit is run: its stamp is read
// from the file.
// Errors: kInvalidArgument if it is no such library; kFailedPrecondition if it was
// built for another Flotilla, Torch or compiler.
absl::StatusOr<void*> LoadFunction(const std::string& title,
                                   const std::string& path,
                                   const std::string& symbol);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_PLUGIN_SHARED_LIBRARY_H_
