#include "learner/collective/shm_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace flotilla {
namespace {

absl::Status Failed(const std::string& what) {
  return absl::ErrnoToStatus(errno, absl::StrCat("shared memory: ", what));
}

absl::StatusOr<std::byte*> Map(int fd, size_t bytes) {
  void* data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return Failed(absl::StrCat("mmap of ", bytes));
  return static_cast<std::byte*>(data);
}

}  // namespace

absl::StatusOr<ShmSegment> ShmSegment::Create(size_t bytes) {
  ShmSegment segment;
  segment.fd_ =
      ::memfd_create("flotilla_collective", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (segment.fd_ < 0) return Failed("memfd_create");
  if (::ftruncate(segment.fd_, static_cast<off_t>(bytes)) != 0) {
    return Failed(absl::StrCat("ftruncate to ", bytes));
  }
  // Nobody can shrink it under a peer, who would die of SIGBUS.
  ::fcntl(segment.fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  struct stat info;
  if (::fstat(segment.fd_, &info) != 0) return Failed("fstat");
  auto data = Map(segment.fd_, bytes);
  if (!data.ok()) return data.status();
  segment.data_ = *data;
  segment.size_ = bytes;
  segment.locator_ =
      absl::StrCat(::getpid(), ":", segment.fd_, ":", info.st_ino, ":", bytes);
  return segment;
}

absl::StatusOr<ShmSegment> ShmSegment::Open(const std::string& locator) {
  const std::vector<std::string> part = absl::StrSplit(locator, ':');
  uint64_t inode = 0;
  uint64_t bytes = 0;
  if (part.size() != 4 || !absl::SimpleAtoi(part[2], &inode) ||
      !absl::SimpleAtoi(part[3], &bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory: \"", locator, "\" is no locator"));
  }
  const std::string path = absl::StrCat("/proc/", part[0], "/fd/", part[1]);
  ShmSegment segment;
  segment.fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat info;
  if (segment.fd_ < 0 || ::fstat(segment.fd_, &info) != 0) {
    return absl::UnavailableError(
        absl::StrCat(Failed("cannot open " + path).message()));
  }
  if (info.st_ino != inode || static_cast<uint64_t>(info.st_size) != bytes) {
    return absl::UnavailableError(
        absl::StrCat("shared memory: ", path, " is another file"));
  }
  auto data = Map(segment.fd_, bytes);
  if (!data.ok()) return data.status();
  segment.data_ = *data;
  segment.size_ = bytes;
  segment.locator_ = locator;
  return segment;
}

ShmSegment::~ShmSegment() {
  if (data_ != nullptr) ::munmap(data_, size_);
  if (fd_ >= 0) ::close(fd_);
}

ShmSegment::ShmSegment(ShmSegment&& other) noexcept {
  *this = std::move(other);
}

ShmSegment& ShmSegment::operator=(ShmSegment&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(locator_, other.locator_);
  return *this;
}

}  // namespace flotilla
