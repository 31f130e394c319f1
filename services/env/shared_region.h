#ifndef FLOTILLA_SERVICES_ENV_SHARED_REGION_H_
#define FLOTILLA_SERVICES_ENV_SHARED_REGION_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/base/owned_fd.h"

namespace flotilla {

// Memory that two processes see: a memfd whose size is sealed, so that neither
// can make the other's access fault.
//
// Not thread-safe; the memory itself is whoever's turn it is, see env.proto.
class SharedRegion {
 public:
  // Makes and seals one of `bytes` bytes, all zero.
  // Errors: kUnavailable if the kernel refuses.
  static absl::StatusOr<SharedRegion> Create(size_t bytes);

  // Maps a descriptor that a stranger sent.
  // Errors: kInvalidArgument if it is not a memfd of exactly `bytes` bytes with
  // its size sealed.
  static absl::StatusOr<SharedRegion> Map(OwnedFd fd, size_t bytes);

  ~SharedRegion();
  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;

  std::span<std::byte> bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }

 private:
  SharedRegion(OwnedFd fd, std::span<std::byte> bytes)
      : fd_(std::move(fd)), bytes_(bytes) {}
  static absl::StatusOr<SharedRegion> MapChecked(OwnedFd fd, size_t bytes);

  OwnedFd fd_;
  std::span<std::byte> bytes_;
};

// Where a server waits for one descriptor: an abstract unix socket, and a token
// that only the learner it was announced to knows.
//
// Not thread-safe.
class RegionReceiver {
 public:
  // Errors: kUnavailable if no socket can be made.
  static absl::StatusOr<std::unique_ptr<RegionReceiver>> Listen();

  // '@' and the socket's name.
  const std::string& socket() const { return socket_; }
  const std::string& token() const { return token_; }

  // Waits for the descriptor that comes with the token. Others' connections are
  // dropped.
  // Errors: kDeadlineExceeded after `timeout`.
  absl::StatusOr<OwnedFd> Receive(absl::Duration timeout);

 private:
  RegionReceiver(OwnedFd listener, std::string socket, std::string token)
      : listener_(std::move(listener)),
        socket_(std::move(socket)),
        token_(std::move(token)) {}

  OwnedFd listener_;
  const std::string socket_;
  const std::string token_;
};

// Passes `fd` to the receiver at `socket`. Never blocks for long.
// Errors: kUnavailable if nobody listens there (the server is on another host).
absl::Status SendRegion(const std::string& socket, const std::string& token,
                        int fd);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_SHARED_REGION_H_
