#include "services/base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

constexpr size_t kHeld = 1 << 16;  // bytes, before they are written

absl::Status Error(const std::string& path) {
  return absl::ErrnoToStatus(errno,
                             absl::StrCat("cannot write \"", path, "\""));
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

AtomicFile::AtomicFile(const std::string& path, mode_t mode)
    : path_(path),
      beside_(absl::StrCat(path, ".", getpid(), ".tmp")),
      file_(open(beside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                 mode)) {
  // Of a process that had our number there may be one with another mode.
  if (file_.get() < 0 || (mode != 0644 && fchmod(file_.get(), mode) != 0)) {
    status_ = Error(path_);
  }
}

AtomicFile::~AtomicFile() {
  if (file_.get() >= 0 && !is_there_) unlink(beside_.c_str());
}

void AtomicFile::Append(absl::string_view text) {
  if (pending_.size() + text.size() >= kHeld) {
    Write(std::exchange(pending_, ""));
    if (text.size() >= kHeld) return Write(text);
  }
  absl::StrAppend(&pending_, text);
}

absl::Status AtomicFile::Place() {
  Write(std::exchange(pending_, ""));
  RETURN_IF_ERROR(status_);
  if (fsync(file_.get()) != 0 || rename(beside_.c_str(), path_.c_str()) != 0) {
    return status_ = Error(path_);
  }
  is_there_ = true;
  SyncFolder(path_);
  return absl::OkStatus();
}

void AtomicFile::Write(absl::string_view text) {
  while (status_.ok() && !text.empty()) {
    const ssize_t n = write(file_.get(), text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EINTR) {
      status_ = Error(path_);
    }
  }
}

absl::Status WriteFileAtomically(const std::string& path,
                                 const std::string& content, mode_t mode) {
  AtomicFile file(path, mode);
  file.Append(content);
  return file.Place();
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
