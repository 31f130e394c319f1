#ifndef FLOTILLA_SERVICES_BASE_APPEND_FILE_H_
#define FLOTILLA_SERVICES_BASE_APPEND_FILE_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace flotilla {

// A file that grows at its end, by whole records. What a full disk does not
// take is kept (16 MB of it at most) and written as soon as there is room: a
// run that goes on loses nothing. Says in the log when that begins and ends.
//
// Not thread-safe.
class AppendFile {
 public:
  // `flags` as those of open(2), beside O_WRONLY, O_CREAT and O_APPEND.
  // Errors: those of open(2), naming the path.
  static absl::StatusOr<std::unique_ptr<AppendFile>> Open(
      const std::string& path, int flags = 0);

  ~AppendFile();

  // What has been taken reaches the kernel before it returns.
  void Append(std::string_view record);

 private:
  AppendFile(const std::string& path, int fd) : path_(path), fd_(fd) {}

  const std::string path_;
  const int fd_;
  std::string pending_;  // appended, and not yet written
  bool waits_ = false;   // for room on the disk
  bool lossy_ = false;   // too much was pending
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_APPEND_FILE_H_
