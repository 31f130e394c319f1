#include "services/env/shared_region.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/printable.h"
#include "services/base/secret.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"

namespace flotilla {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr size_t kTokenBytes = 16;
constexpr size_t kMaxTokenBytes = 64;  // of others' servers
constexpr char kSocketPrefix[] = "@flotilla";
constexpr size_t kMaxPending = 16;

absl::Status SystemError(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::StatusOr<std::string> RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  if (getrandom(bytes.data(), count, 0) != static_cast<ssize_t>(count)) {
    return SystemError("getrandom");
  }
  return bytes;
}

// '@name' is abstract, anything else a path. Returns the length, 0 if too long.
socklen_t FillAddress(const std::string& socket, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  if (socket.empty() || socket.size() >= sizeof(address->sun_path)) return 0;
  std::memcpy(address->sun_path, socket.data(), socket.size());
  const bool abstract = socket[0] == '@';
  if (abstract) address->sun_path[0] = '\0';
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                socket.size() + (abstract ? 0 : 1));
}

union ControlBuffer {
  cmsghdr align;
  char bytes[CMSG_SPACE(sizeof(int))];
};

// One message and the descriptor beside it, if there is one. `connection` has
// something to read.
std::pair<std::string, OwnedFd> ReadMessage(int connection, size_t most) {
  std::string bytes(most, '\0');
  iovec data = {bytes.data(), bytes.size()};
  ControlBuffer control = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  // Not all of it: its padding would let a second descriptor in.
  message.msg_controllen = CMSG_LEN(sizeof(int));
  const ssize_t got =
      recvmsg(connection, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  OwnedFd fd;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); got >= 0 && header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    int received;
    std::memcpy(&received, CMSG_DATA(header), sizeof(received));
    fd = OwnedFd(received);
  }
  bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return {std::move(bytes), std::move(fd)};
}

}  // namespace

absl::StatusOr<SharedRegion> SharedRegion::Create(size_t bytes) {
  OwnedFd fd(memfd_create("flotilla-slots", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0) return SystemError("memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return SystemError(absl::StrCat("ftruncate to ", bytes, " bytes"));
  }
  if (fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) != 0) {
    return SystemError("sealing a memfd");
  }
  return MapChecked(std::move(fd), bytes);
}

absl::StatusOr<SharedRegion> SharedRegion::Map(OwnedFd fd, size_t bytes) {
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0) {
    return absl::InvalidArgumentError(
        "the shared region's descriptor is not a memfd");
  }
  if ((seals & kSizeSeals) != kSizeSeals) {
    return absl::InvalidArgumentError(
        absl::StrCat("the shared region has seals ", seals, ", want ",
                     kSizeSeals, " (F_SEAL_SHRINK | F_SEAL_GROW) among them"));
  }
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return SystemError("fstat");
  if (static_cast<uint64_t>(info.st_size) != bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the shared region has ", info.st_size, " bytes, want ", bytes));
  }
  return MapChecked(std::move(fd), bytes);
}

absl::StatusOr<SharedRegion> SharedRegion::MapChecked(OwnedFd fd,
                                                      size_t bytes) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot map the shared region of ", bytes,
                     " bytes: ", std::strerror(errno)));
  }
  return SharedRegion(std::move(fd), {static_cast<std::byte*>(memory), bytes});
}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept
    : fd_(std::move(other.fd_)), bytes_(std::exchange(other.bytes_, {})) {}

SharedRegion& SharedRegion::operator=(SharedRegion&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedRegion::~SharedRegion() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

absl::StatusOr<std::unique_ptr<RegionReceiver>> RegionReceiver::Listen() {
  ASSIGN_OR_RETURN(const std::string name, RandomBytes(8));
  ASSIGN_OR_RETURN(std::string token, RandomBytes(kTokenBytes));
  std::string socket_name = absl::StrCat(kSocketPrefix, "-env-", getpid(), "-",
                                         absl::BytesToHexString(name));
  OwnedFd listener(
      ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  const socklen_t length = FillAddress(socket_name, &address);
  if (listener.get() < 0 ||
      bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) !=
          0 ||
      listen(listener.get(), kMaxPending) != 0) {
    return SystemError(absl::StrCat("unix socket ", socket_name));
  }
  return std::unique_ptr<RegionReceiver>(new RegionReceiver(
      std::move(listener), std::move(socket_name), std::move(token)));
}

absl::StatusOr<OwnedFd> RegionReceiver::Receive(absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  std::vector<OwnedFd> pending;  // connected, silent so far
  for (;;) {
    std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}};
    for (const OwnedFd& fd : pending) polled.push_back({fd.get(), POLLIN, 0});
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "start.shared_memory was given, but no descriptor came with the "
          "right token on ",
          socket_, " within ", absl::FormatDuration(timeout)));
    }
    poll(polled.data(), polled.size(),
         static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    for (size_t i = polled.size() - 1; i > 0; --i) {
      if (polled[i].revents == 0) continue;
      auto [bytes, fd] = ReadMessage(polled[i].fd, kTokenBytes + 1);
      pending.erase(pending.begin() + static_cast<ptrdiff_t>(i) - 1);
      if (fd.get() >= 0 && EqualInConstantTime(bytes, token_)) {
        return std::move(fd);
      }
    }
    OwnedFd connection(
        accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.get() < 0) continue;
    if (pending.size() == kMaxPending) pending.erase(pending.begin());
    pending.push_back(std::move(connection));
  }
}

absl::Status SendRegion(const std::string& socket_name,
                        const std::string& token, int fd) {
  // A server names it: it is to reach nothing else that listens here.
  if (!absl::StartsWith(socket_name, kSocketPrefix) ||
      token.size() > kMaxTokenBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the shared region's socket is \"", PrintableLine(socket_name),
        "\" and its token ", token.size(),
        " bytes, want a name that begins "
        "with ",
        kSocketPrefix, " and ", kMaxTokenBytes, " bytes at most"));
  }
  sockaddr_un address;
  const socklen_t length = FillAddress(socket_name, &address);
  OwnedFd connection(
      ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (length == 0 || connection.get() < 0 ||
      connect(connection.get(), reinterpret_cast<sockaddr*>(&address),
              length) != 0) {
    return SystemError(absl::StrCat("connecting to ", socket_name));
  }
  iovec data = {const_cast<char*>(token.data()), token.size()};
  ControlBuffer control = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(fd));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  if (sendmsg(connection.get(), &message, MSG_NOSIGNAL) !=
      static_cast<ssize_t>(token.size())) {
    return SystemError(absl::StrCat("passing a descriptor to ", socket_name));
  }
  return absl::OkStatus();
}

}  // namespace flotilla
