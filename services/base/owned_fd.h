#ifndef FLOTILLA_SERVICES_BASE_OWNED_FD_H_
#define FLOTILLA_SERVICES_BASE_OWNED_FD_H_

#include <unistd.h>

#include <utility>

namespace flotilla {

// A file descriptor that closes itself; -1: none.
class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) : fd_(fd) {}
  ~OwnedFd() {
    if (fd_ >= 0) close(fd_);
  }
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.Release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const { return fd_; }

  // Whoever calls closes it.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_OWNED_FD_H_
