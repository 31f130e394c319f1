#ifndef FLOTILLA_LEARNER_CHECKPOINT_DURABLE_FILE_H_
#define FLOTILLA_LEARNER_CHECKPOINT_DURABLE_FILE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/base/sha256.h"

namespace flotilla {

// A new file that is written once, from front to back, and is on the disk when
// Finish returns. Whatever goes wrong, the error names the path and the cause;
// kResourceExhausted if the disk, the quota or the process's limit is full.
//
// Not thread-safe.
class DurableFile {
 public:
  // Errors: kAlreadyExists, and what else the system says.
  static absl::StatusOr<DurableFile> Create(const std::string& path);

  ~DurableFile();
  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&&) = delete;

  absl::Status Append(const void* data, size_t size);

  // Syncs and closes. Returns the SHA-256 of what was written, in hex.
  absl::StatusOr<std::string> Finish();

 private:
  DurableFile(const std::string& path, int fd)
      : path_(path), fd_(fd), sha256_(std::make_unique<Sha256>()) {}

  std::string path_;
  int fd_;
  std::unique_ptr<Sha256> sha256_;
};

// Makes the names in folder `path` last.
absl::Status SyncFolder(const std::string& path);

// What `errno` says about `what` ("cannot write /x"): as absl::ErrnoToStatus,
// but for a full file system in all its forms, which is kResourceExhausted.
absl::Status FileError(const std::string& what);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CHECKPOINT_DURABLE_FILE_H_
