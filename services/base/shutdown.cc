#include "services/base/shutdown.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP};
constexpr uint8_t kQuit = 0;  // not a signal number

// Where the handlers write; -1 while nothing is installed.
std::atomic<int> g_write_fd = -1;
struct sigaction g_previous[std::size(kSignals)];

void OnSignal(int signal) {
  const int saved_errno = errno;
  const uint8_t byte = static_cast<uint8_t>(signal);
  // A full pipe means that 64 Ki signals are waiting: one more says nothing.
  [[maybe_unused]] ssize_t n = write(g_write_fd.load(), &byte, 1);
  errno = saved_errno;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShutdownSignals>> ShutdownSignals::Install() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot make a pipe for signals: ", std::strerror(errno)));
  }
  // Only the handler's end: the thread is meant to block.
  fcntl(fds[1], F_SETFL, O_NONBLOCK);

  int none = -1;
  if (!g_write_fd.compare_exchange_strong(none, fds[1])) {
    close(fds[0]);
    close(fds[1]);
    return absl::FailedPreconditionError(
        "signals are already handled by another ShutdownSignals");
  }

  std::unique_ptr<ShutdownSignals> result(new ShutdownSignals(fds[0], fds[1]));
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &g_previous[i]);
    const bool nohup =
        kSignals[i] == SIGHUP && g_previous[i].sa_handler == SIG_IGN;
    if (!nohup) sigaction(kSignals[i], &action, nullptr);
  }
  return result;
}

ShutdownSignals::ShutdownSignals(int read_fd, int write_fd)
    : read_fd_(read_fd), write_fd_(write_fd), thread_([this] { Run(); }) {}

ShutdownSignals::~ShutdownSignals() {
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], &g_previous[i], nullptr);
  }
  // The thread drains the pipe, so there is room sooner or later.
  while (write(write_fd_, &kQuit, 1) < 0 &&
         (errno == EAGAIN || errno == EINTR)) {
    std::this_thread::yield();
  }
  thread_.join();
  g_write_fd = -1;
  close(read_fd_);
  close(write_fd_);
}

void ShutdownSignals::Run() {
  uint8_t byte;
  while (true) {
    const ssize_t n = read(read_fd_, &byte, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || byte == kQuit) return;
    if (first_signal_ == 0) first_signal_ = byte;
    ++signals_;
    if (byte == SIGINT && ++interrupts_ >= 2) stop_now_.request_stop();
    stop_.request_stop();
  }
}

}  // namespace flotilla
