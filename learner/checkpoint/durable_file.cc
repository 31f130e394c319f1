#include "learner/checkpoint/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace flotilla {

absl::Status FileError(const std::string& what) {
  const absl::Status status = absl::ErrnoToStatus(errno, what);
  const bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
  return full ? absl::ResourceExhaustedError(status.message()) : status;
}

absl::StatusOr<DurableFile> DurableFile::Create(const std::string& path) {
  const int fd =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return FileError(absl::StrCat("cannot create ", path));
  return DurableFile(path, fd);
}

DurableFile::DurableFile(DurableFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      sha256_(std::move(other.sha256_)) {}

DurableFile::~DurableFile() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status DurableFile::Append(const void* data, size_t size) {
  sha256_->Update(data, size);
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(fd_, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError(absl::StrCat("cannot write ", path_));
    at += written;
    size -= written;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> DurableFile::Finish() {
  // Some file systems tell only now that there was no room.
  if (::fsync(fd_) != 0) {
    return FileError(absl::StrCat("cannot sync ", path_));
  }
  if (::close(std::exchange(fd_, -1)) != 0) {
    return FileError(absl::StrCat("cannot close ", path_));
  }
  return sha256_->HexDigest();
}

absl::Status SyncFolder(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileError(absl::StrCat("cannot open ", path));
  // Some file systems cannot sync a folder, and need not.
  const bool synced = ::fsync(fd) == 0 || errno == EINVAL;
  const absl::Status status =
      synced ? absl::OkStatus() : FileError(absl::StrCat("cannot sync ", path));
  ::close(fd);
  return status;
}

}  // namespace flotilla
