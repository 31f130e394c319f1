#ifndef FLOTILLA_SERVICES_BASE_ATOMIC_FILE_H_
#define FLOTILLA_SERVICES_BASE_ATOMIC_FILE_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "services/base/owned_fd.h"

namespace flotilla {

// A file that takes the place of the one at `path` once it is whole, of which no more
// than 64 KiB are held in memory. Not thread-safe.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path, mode_t mode = 0644);
  // Unless it took its place, there is nothing of it.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void Append(absl::string_view text);

  // As WriteFileAtomically; once. Errors: also those of what was done before.
  absl::Status Place();

 private:
  void Write(absl::string_view text);

  const std::string path_, beside_;
  const OwnedFd file_;
  std::string pending_;
  absl::Status status_;
  bool is_there_ = false;
};

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
