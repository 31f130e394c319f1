#include "learner/collective/peer_process.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace flotilla {

absl::StatusOr<PeerProcess> PeerProcess::Open(pid_t pid) {
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("cannot watch process ", pid));
  }
  return PeerProcess(pid, pidfd);
}

PeerProcess::~PeerProcess() {
  if (pidfd_ >= 0) ::close(pidfd_);
}

PeerProcess::PeerProcess(PeerProcess&& other) noexcept
    : pid_(other.pid_), pidfd_(std::exchange(other.pidfd_, -1)) {}

PeerProcess& PeerProcess::operator=(PeerProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  return *this;
}

bool PeerProcess::Ended() const {
  // Readable once it has ended, even before it is reaped.
  pollfd poll_fd{pidfd_, POLLIN, 0};
  return ::poll(&poll_fd, 1, 0) > 0;
}

std::string PeerProcess::Describe() const {
  const std::string name = absl::StrCat("process ", pid_, ", which ");
  if (Ended()) return name + "has ended";
  // pid (program name) state ...; the name may hold anything but a newline.
  std::string stat;
  std::getline(std::ifstream(absl::StrCat("/proc/", pid_, "/stat")), stat);
  const size_t close = stat.rfind(") ");
  const char state = close != std::string::npos && close + 2 < stat.size()
                         ? stat[close + 2]
                         : '?';
  return name + (state == 'T' || state == 't' ? "is stopped" : "runs");
}

}  // namespace flotilla
