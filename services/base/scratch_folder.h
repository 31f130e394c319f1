#ifndef FLOTILLA_SERVICES_BASE_SCRATCH_FOLDER_H_
#define FLOTILLA_SERVICES_BASE_SCRATCH_FOLDER_H_

#include <string>

#include "absl/status/status.h"

namespace flotilla {

// A folder that only this user can enter, TMPDIR/flotilla_PID_XXXXXX (or in
// /tmp), for as long as this object lives. Unix sockets fit in it.
//
// It holds a lock, which ends with the process, however that ends: the first of
// a process removes what others left that were killed.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  // Why there is none, with the remedy. kFailedPrecondition if TMPDIR is no
  // folder or too long for a socket; kUnavailable if nothing can be made in it.
  const absl::Status& status() const { return status_; }

  // "" if there is none.
  const std::string& path() const { return path_; }

 private:
  absl::Status Make();

  std::string path_;
  int lock_ = -1;
  absl::Status status_;
};

// Removes the scratch folders in `parent` that are this user's and whose
// processes are gone. One without a lock is let alone: its process may live
// where we cannot see it.
void RemoveAbandonedScratch(const std::string& parent);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_SCRATCH_FOLDER_H_
