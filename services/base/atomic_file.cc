#include "services/base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

absl::Status Error(const std::string& path) {
  return absl::ErrnoToStatus(errno,
                             absl::StrCat("cannot write \"", path, "\""));
}

bool WriteAll(int fd, const std::string& content) {
  size_t written = 0;
  while (written < content.size()) {
    const ssize_t n =
        write(fd, content.data() + written, content.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    written += n;
  }
  return true;
}

// A rename lasts once its folder is synced. Some file systems cannot: the file
// is whole even so.
void SyncFolder(const std::string& path) {
  const std::filesystem::path parent =
      std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

}  // namespace

absl::Status WriteFileAtomically(const std::string& path,
                                 const std::string& content, mode_t mode) {
  const std::string aside = absl::StrCat(path, ".", getpid(), ".tmp");
  const int fd =
      open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd < 0) return Error(path);
  // Of a process that had our number there may be one with another mode.
  const bool ours = mode == 0644 || fchmod(fd, mode) == 0;
  const bool written = ours && WriteAll(fd, content) && fsync(fd) == 0;
  absl::Status status = written ? absl::OkStatus() : Error(path);
  close(fd);
  if (status.ok() && rename(aside.c_str(), path.c_str()) != 0) {
    status = Error(path);
  }
  if (!status.ok()) {
    unlink(aside.c_str());
    return status;
  }
  SyncFolder(path);
  return absl::OkStatus();
}

absl::Status LinkAtomically(const std::string& path,
                            const std::string& target) {
  const std::filesystem::path place(path);
  const std::string aside =
      place.parent_path() /
      absl::StrCat(".aside_", place.filename().string(), ".", getpid());
  unlink(aside.c_str());
  if (symlink(target.c_str(), aside.c_str()) != 0 ||
      rename(aside.c_str(), path.c_str()) != 0) {
    const absl::Status status = Error(path);
    unlink(aside.c_str());
    return status;
  }
  SyncFolder(path);
  return absl::OkStatus();
}

}  // namespace flotilla
