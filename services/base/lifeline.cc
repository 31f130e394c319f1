#include "services/base/lifeline.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

namespace flotilla {
namespace {

constexpr int kExitCode = 128 + SIGKILL;

bool g_has_parent = false;
void (*g_on_term)(int) = nullptr;

// The descriptor the variable names, or -1 if that is not a pipe: a process
// started by something else may have inherited the variable alone.
int LifelineDescriptor() {
  const char* text = getenv(kLifelineVariable);
  if (text == nullptr || *text == '\0') return -1;
  char* end = nullptr;
  const long fd = strtol(text, &end, 10);
  if (*end != '\0' || fd < 0 || fd > 1 << 20) return -1;
  struct stat info;
  if (fstat(static_cast<int>(fd), &info) != 0 || !S_ISFIFO(info.st_mode)) {
    return -1;
  }
  return static_cast<int>(fd);
}

void OnTerm(int signal, siginfo_t* info, void*) {
  if (info->si_pid == getppid()) g_on_term(signal);
}

void Watch(int fd) {
  char byte;
  for (;;) {
    const ssize_t got = read(fd, &byte, 1);
    if (got > 0 || (got < 0 && errno == EINTR)) continue;
    if (got < 0) return;  // not an end of file: no reason to die
    if (getpgrp() == getpid()) kill(0, SIGKILL);
    _exit(kExitCode);
  }
}

}  // namespace

void StartLifelineWatch() {
  const int fd = LifelineDescriptor();
  unsetenv(kLifelineVariable);
  if (fd < 0) return;
  g_has_parent = true;
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  // Signals are for the threads that expect them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(Watch, fd).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void ObeyParentOnly() {
  signal(SIGUSR1, SIG_IGN);
  signal(SIGUSR2, SIG_IGN);
  if (!g_has_parent) return;
  signal(SIGHUP, SIG_IGN);
  struct sigaction action = {};
  sigaction(SIGTERM, nullptr, &action);
  g_on_term = action.sa_handler;
  action.sa_sigaction = OnTerm;
  action.sa_flags |= SA_SIGINFO;
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace flotilla
