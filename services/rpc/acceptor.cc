#include "services/rpc/acceptor.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"

namespace flotilla {
namespace {

// HTTP/2's connection preface. A TLS hello is longer.
constexpr size_t kFirstWords = 24;
// Accepted in one go, before others are looked at.
constexpr int kMostAtOnce = 64;
constexpr int kMostEvents = 64;
// What a system that has run out of something gets to recover.
constexpr int kPauseMs = 20;
constexpr absl::Duration kRecountEvery = absl::Milliseconds(100);

// Tells one connection from a later one with the same descriptor: the number of its
// inode, for sandboxes (gVisor) have no SO_COOKIE. 0: none.
ino_t NumberOf(int fd) {
  struct stat info = {};
  if (fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode)) return 0;
  return info.st_ino;
}

std::string HostOf(int fd) {
  sockaddr_storage name = {};
  socklen_t size = sizeof(name);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) {
    return "nobody";
  }
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&name);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&name);
  switch (name.ss_family) {
    case AF_INET:
      return std::string(reinterpret_cast<const char*>(&v4->sin_addr), 4);
    case AF_INET6: {
      const char* bytes = reinterpret_cast<const char*>(&v6->sin6_addr);
      return IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) ? std::string(bytes + 12, 4)
                                                  : std::string(bytes, 8);
    }
    default: {
      ucred user = {};
      socklen_t user_size = sizeof(user);
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &user_size);
      return absl::StrCat("user ", user.uid);
    }
  }
}

absl::Status Watch(int epoll, int fd, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "epoll_ctl");
}

OwnedFd OpenReserve() {
  return OwnedFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace

AcceptorLimits AcceptorLimits::Of(int limit) {
  AcceptorLimits limits;
  limits.descriptors = limit - std::clamp(limit / 8, 16, 256);
  limits.silent = std::clamp(limit / 8, 8, 512);
  limits.per_host = std::max(limits.descriptors / 2, 1);
  return limits;
}

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Start(
    Listener listener, const AcceptorLimits& limits, Take take) {
  std::unique_ptr<Acceptor> acceptor(
      new Acceptor(std::move(listener), limits, std::move(take)));
  RETURN_IF_ERROR(acceptor->Prepare());
  acceptor->thread_ = std::thread([a = acceptor.get()] { a->Run(); });
  return acceptor;
}

absl::Status Acceptor::Prepare() {
  epoll_ = OwnedFd(epoll_create1(EPOLL_CLOEXEC));
  quit_ = OwnedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  reserve_ = OpenReserve();
  if (epoll_.get() < 0 || quit_.get() < 0 || reserve_.get() < 0) {
    return absl::ErrnoToStatus(errno, "cannot accept connections");
  }
  RETURN_IF_ERROR(Watch(epoll_.get(), quit_.get(), EPOLLIN));
  for (const OwnedFd& socket : listener_.sockets()) {
    RETURN_IF_ERROR(Watch(epoll_.get(), socket.get(), EPOLLIN));
  }
  return absl::OkStatus();
}

Acceptor::~Acceptor() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  CHECK_EQ(write(quit_.get(), &one, sizeof(one)), ssize_t{sizeof(one)});
  thread_.join();
}

void Acceptor::Run() {
  epoll_event events[kMostEvents];
  while (true) {
    int timeout_ms = -1;
    if (!silent_.empty()) {
      const absl::Duration left = silent_.front().until - SteadyNow();
      timeout_ms = static_cast<int>(
          std::max<int64_t>(absl::ToInt64Milliseconds(left) + 1, 0));
    }
    const int count = epoll_wait(epoll_.get(), events, kMostEvents, timeout_ms);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.fd == quit_.get()) return;
    }
    LookAt(events, count);
    // Last, for it gives out descriptors again that events above may mean.
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      for (const OwnedFd& socket : listener_.sockets()) {
        if (socket.get() == fd) AcceptFrom(fd);
      }
    }
    DropOverdue();
  }
}

void Acceptor::AcceptFrom(int listener) {
  for (int i = 0; i < kMostAtOnce; ++i) {
    OwnedFd fd(
        accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.get() >= 0) {
      Admit(std::move(fd), listener);
      continue;
    }
    switch (errno) {
      case EAGAIN:
        return;
      case EMFILE:
      case ENFILE:
      case ENOBUFS:
      case ENOMEM:
        if (silent_.empty()) {
          TurnAwayOne(listener);
        } else if (!LookAtSilent() && !silent_.empty()) {
          DropOne();
        }
        break;
      default:  // of that one connection: accept(2)
        break;
    }
  }
}

void Acceptor::Admit(OwnedFd fd, int listener) {
  // The lowest free number is given out: it says how many are taken.
  if (fd.get() >= limits_.descriptors && !LookAtSilent()) {
    if (silent_.empty()) {
      LOG_EVERY_N(WARNING, 1000)
          << "closing new connections to " << listener_.address() << ": "
          << limits_.descriptors
          << " descriptors are in use (ulimit -n allows some more)";
      return;
    }
    DropOne();
  }
  const int number = fd.get();
  std::string host = HostOf(number);
  if (!TakesMoreFrom(host)) return;
  ++silent_of_[host];
  silent_.push_back({std::move(fd), listener, std::move(host),
                     SteadyNow() + limits_.patience});
  const auto connection = std::prev(silent_.end());
  silent_by_fd_[number] = connection;
  // Edge-triggered: half a word must not keep this thread busy.
  if (!Watch(epoll_.get(), number, EPOLLIN | EPOLLRDHUP | EPOLLET).ok()) {
    Drop(connection);
    return;
  }
  Look(connection, /*over=*/false);
  const auto too_many = [this] {
    return static_cast<int>(silent_.size()) > limits_.silent;
  };
  if (too_many()) LookAtSilent();
  if (too_many()) DropOne();
}

// At what they have done by now, so that none is dropped for one that is gone.
// Whether any was.
bool Acceptor::LookAtSilent() {
  epoll_event events[kMostEvents];
  bool gone = false;
  int count = kMostEvents;
  while (count == kMostEvents) {
    count = epoll_wait(epoll_.get(), events, kMostEvents, /*timeout=*/0);
    gone |= LookAt(events, count);
  }
  return gone;
}

// Whether any was gone.
bool Acceptor::LookAt(const epoll_event* events, int count) {
  bool gone = false;
  for (int i = 0; i < count; ++i) {
    // One that was dropped in this round is not there any more.
    const auto silent = silent_by_fd_.find(events[i].data.fd);
    if (silent == silent_by_fd_.end()) continue;
    gone |= Look(silent->second,
                 (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
  }
  return gone;
}

// Hands over who has spoken, and closes who is gone, which it says.
bool Acceptor::Look(SilentList::iterator connection, bool over) {
  char words[kFirstWords];
  const ssize_t said =
      recv(connection->fd.get(), words, sizeof(words), MSG_PEEK | MSG_DONTWAIT);
  if (said == ssize_t{sizeof(words)}) {
    HandOver(connection);
    return false;
  }
  const bool gone =
      over || said == 0 || (said < 0 && errno != EAGAIN && errno != EINTR);
  if (gone) Drop(connection);
  return gone;
}

void Acceptor::HandOver(SilentList::iterator connection) {
  const int fd = connection->fd.Release();
  const int listener = connection->listener;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  const auto before = taken_by_fd_.find(fd);
  if (before != taken_by_fd_.end()) CountOut(&taken_of_, before->second.host);
  ++taken_of_[connection->host];
  taken_by_fd_[fd] = {NumberOf(fd), connection->host};
  silent_by_fd_.erase(fd);
  CountOut(&silent_of_, connection->host);
  silent_.erase(connection);
  take_(fd, listener);
}

void Acceptor::Drop(SilentList::iterator connection) {
  silent_by_fd_.erase(connection->fd.get());
  CountOut(&silent_of_, connection->host);
  silent_.erase(connection);  // closed, it leaves the epoll set
}

// The oldest of the host that has most of them.
void Acceptor::DropOne() {
  const auto greedy = std::max_element(
      silent_of_.begin(), silent_of_.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  Drop(std::find_if(silent_.begin(), silent_.end(), [&](const Silent& silent) {
    return silent.host == greedy->first;
  }));
}

void Acceptor::DropOverdue() {
  const absl::Time now = SteadyNow();
  while (!silent_.empty() && silent_.front().until <= now) {
    Drop(silent_.begin());
  }
}

// Whether `host` has connections to spare. Those handed over are counted again
// only where it seems to have none: nobody says when they end.
bool Acceptor::TakesMoreFrom(const std::string& host) {
  const auto seems = [&] {
    const auto found = taken_of_.find(host);
    return found == taken_of_.end() || found->second < limits_.per_host;
  };
  const absl::Time now = SteadyNow();
  if (!seems() && now - recounted_ >= kRecountEvery) {
    recounted_ = now;
    absl::erase_if(taken_by_fd_, [this](const auto& entry) {
      const auto& [fd, taken] = entry;
      // One without a number counts as gone: `descriptors` still bounds them all,
      // and a host is not shut out for good.
      if (taken.number != 0 && NumberOf(fd) == taken.number) return false;
      CountOut(&taken_of_, taken.host);
      return true;
    });
  }
  return seems();
}

// With no descriptor left, a waiting connection would make the listener call
// again and again.
void Acceptor::TurnAwayOne(int listener) {
  LOG_EVERY_N(WARNING, 1000) << "turning connections to " << listener_.address()
                             << " away: no descriptor is left (ulimit -n)";
  reserve_ = OwnedFd();
  bool accepted = false;
  {
    const OwnedFd one(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    accepted = one.get() >= 0;
  }
  reserve_ = OpenReserve();
  if (!accepted || reserve_.get() < 0) poll(nullptr, 0, kPauseMs);
}

void Acceptor::CountOut(std::map<std::string, int>* counts,
                        const std::string& host) {
  const auto found = counts->find(host);
  if (--found->second == 0) counts->erase(found);
}

}  // namespace flotilla
