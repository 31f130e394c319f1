#include "services/base/subprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/base/lifeline.h"
#include "services/base/mutex.h"
#include "services/base/steady_now.h"

extern char** environ;

namespace flotilla {
namespace {

// Where the child finds its lifeline; everything above is closed in it.
constexpr int kChildLifelineFd = 3;
// A child that does not die of SIGKILL hangs in the kernel; we do not hang too.
constexpr absl::Duration kReapTimeout = absl::Seconds(10);

// A descriptor that closes itself.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string ErrnoText(int error) { return strerrordesc_np(error); }

absl::Status SpawnError(int error, const std::string& program) {
  const std::string message =
      absl::StrCat("cannot start ", program, ": ", ErrnoText(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(message);
  if (error == EACCES || error == ENOEXEC || error == EPERM) {
    return absl::PermissionDeniedError(message);
  }
  if (error == EAGAIN) {
    return absl::ResourceExhaustedError(
        absl::StrCat(message, "; ", ProcessLimitHint()));
  }
  if (error == ENOMEM || error == EMFILE) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::InternalError(message);
}

// Both ends close on exec and are above the standard three, so that no child,
// of ours or of a library, can hold the write end by accident.
absl::Status MakePipe(Fd* read_end, Fd* write_end) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot make a lifeline pipe: ", ErrnoText(errno)));
  }
  const Fd low_read(fds[0]), low_write(fds[1]);
  *read_end = Fd(fcntl(low_read.get(), F_DUPFD_CLOEXEC, kChildLifelineFd));
  *write_end = Fd(fcntl(low_write.get(), F_DUPFD_CLOEXEC, kChildLifelineFd));
  if (read_end->get() < 0 || write_end->get() < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot make a lifeline pipe: ", ErrnoText(errno)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Fd> OpenLog(const std::string& path) {
  const int low =
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (low < 0) {
    const std::string message =
        absl::StrCat("cannot write the log ", path, ": ", ErrnoText(errno));
    if (errno == ENOENT) return absl::NotFoundError(message);
    return absl::PermissionDeniedError(message);
  }
  const Fd low_fd(low);
  return Fd(fcntl(low, F_DUPFD_CLOEXEC, kChildLifelineFd));
}

std::vector<std::string> ChildEnvironment(
    std::vector<std::pair<std::string, std::string>> changes) {
  changes.emplace_back(kLifelineVariable, absl::StrCat(kChildLifelineFd));
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    const bool replaced =
        std::any_of(changes.begin(), changes.end(),
                    [&](const auto& change) { return change.first == name; });
    if (!replaced) result.push_back(text);
  }
  for (const auto& [name, value] : changes) {
    result.push_back(absl::StrCat(name, "=", value));
  }
  return result;
}

std::vector<char*> Pointers(std::vector<std::string>* strings) {
  std::vector<char*> result;
  for (std::string& text : *strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// posix_spawn's two argument objects. In the child, in this order: descriptors,
// then signals as a fresh process has them, then its own process group.
class SpawnPlan {
 public:
  // `group`: the process group to join; 0: one of its own; -1: ours.
  SpawnPlan(int lifeline, int log, pid_t group) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    // A child in a background group that read the terminal would be stopped.
    posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0);
    if (log >= 0) {
      posix_spawn_file_actions_adddup2(&actions_, log, 1);
      posix_spawn_file_actions_adddup2(&actions_, log, 2);
    }
    // Onto itself, too, this clears close-on-exec.
    posix_spawn_file_actions_adddup2(&actions_, lifeline, kChildLifelineFd);
    posix_spawn_file_actions_addclosefrom_np(&actions_, kChildLifelineFd + 1);

    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    if (group >= 0) {
      posix_spawnattr_setpgroup(&attributes_, group);
      flags |= POSIX_SPAWN_SETPGROUP;
    }
    posix_spawnattr_setflags(&attributes_, flags);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// Ends its process group with the lifeline: the half of lifeline.h that a
// program of others lacks. What ends batch jobs does not end it sooner.
constexpr char kGuard[] =
    "trap '' HUP INT TERM USR1 USR2; read ended <&3; kill -s KILL 0";

// Starts the guard of `program` in a process group of its own. Errors: those of
// posix_spawn.
int StartGuard(int lifeline, const std::string& program, pid_t* pid) {
  // The last is for people who look at processes.
  std::vector<std::string> arguments = {"/bin/sh", "-c", kGuard,
                                        "flotilla-guard", program};
  std::vector<std::string> environment = ChildEnvironment({});
  const SpawnPlan plan(lifeline, /*log=*/-1, /*group=*/0);
  return posix_spawn(pid, arguments[0].c_str(), plan.actions(),
                     plan.attributes(), Pointers(&arguments).data(),
                     Pointers(&environment).data());
}

}  // namespace

struct Subprocess::Impl {
  ~Impl() {
    MutexLock lock(&mu);
    EndGuard();  // of a program that did not start
  }

  // Constant after construction.
  pid_t pid = -1;
  Fd lifeline;  // the write end: closed, the child dies
  Fd pidfd;     // readable when the child has ended; -1 on an old kernel

  Mutex mu;
  std::optional<Exit> exit ABSL_GUARDED_BY(mu);
  pid_t group ABSL_GUARDED_BY(mu) = -1;  // the child's, if it is not ours
  pid_t guard ABSL_GUARDED_BY(mu) = -1;  // leads it, if there is one

  // Reaps the child if it has ended. What it left in its process group goes
  // first, while the unreaped child still keeps the group's number from being
  // reused.
  std::optional<Exit> Reap() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (exit) return exit;
    siginfo_t info = {};
    if (waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
      // Someone else reaped it (SIGCHLD ignored): that it ended is all we know.
      if (errno == ECHILD) exit = Exit{.code = 255, .signal = 0};
      return exit;
    }
    if (info.si_pid == 0) return std::nullopt;
    if (group > 0) kill(-group, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    EndGuard();
    if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      exit = Exit{.code = 128 + signal, .signal = signal};
    } else {
      exit = Exit{.code = WEXITSTATUS(status), .signal = 0};
    }
    return exit;
  }

  void EndGuard() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (guard < 0) return;
    kill(-group, SIGKILL);
    waitpid(std::exchange(guard, -1), nullptr, 0);
    group = -1;
  }

  // Blocks until the child may have ended, `longest` at most.
  void AwaitChange(absl::Duration longest) {
    const absl::Duration slice = std::min(
        longest, pidfd.get() < 0 ? absl::Milliseconds(5) : absl::Seconds(3600));
    pollfd entry = {.fd = pidfd.get(), .events = POLLIN, .revents = 0};
    poll(&entry, 1, static_cast<int>(absl::ToInt64Milliseconds(slice)) + 1);
  }
};

absl::StatusOr<std::unique_ptr<Subprocess>> Subprocess::Start(
    const SubprocessOptions& options) {
  if (options.argv.empty()) {
    return absl::InvalidArgumentError("a subprocess needs argv[0], its path");
  }
  auto impl = std::make_unique<Impl>();
  Fd read_end;
  if (absl::Status made = MakePipe(&read_end, &impl->lifeline); !made.ok()) {
    return made;
  }
  Fd log;
  if (!options.log_path.empty()) {
    absl::StatusOr<Fd> opened = OpenLog(options.log_path);
    if (!opened.ok()) return opened.status();
    log = std::move(*opened);
  }
  std::vector<std::string> arguments = options.argv;
  std::vector<std::string> environment = ChildEnvironment(options.env);
  pid_t join = options.new_process_group ? 0 : -1;
  MutexLock lock(&impl->mu);
  if (options.guarded) {
    const int error = StartGuard(read_end.get(), arguments[0], &join);
    if (error != 0) return SpawnError(error, "/bin/sh");
    impl->guard = impl->group = join;
  }
  const SpawnPlan plan(read_end.get(), log.get(), join);
  // glibc starts the child with clone(CLONE_VM | CLONE_VFORK): no page is
  // copied and no other thread's lock is left held in the child.
  const int error = posix_spawn(
      &impl->pid, arguments[0].c_str(), plan.actions(), plan.attributes(),
      Pointers(&arguments).data(), Pointers(&environment).data());
  if (error != 0) return SpawnError(error, arguments[0]);
  if (join == 0) impl->group = impl->pid;
  impl->pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, impl->pid, 0)));
  return std::unique_ptr<Subprocess>(new Subprocess(std::move(impl)));
}

Subprocess::Subprocess(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Subprocess::~Subprocess() {
  Signal(SIGKILL, /*whole_group=*/true);
  Wait(kReapTimeout);
}

pid_t Subprocess::pid() const { return impl_->pid; }

std::optional<Subprocess::Exit> Subprocess::Poll() {
  MutexLock lock(&impl_->mu);
  return impl_->Reap();
}

std::optional<Subprocess::Exit> Subprocess::Wait(absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  for (;;) {
    if (std::optional<Exit> ended = Poll()) return ended;
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) return std::nullopt;
    impl_->AwaitChange(left);
  }
}

absl::Status Subprocess::AwaitFile(const std::string& path,
                                   absl::Duration timeout,
                                   std::stop_token stop) {
  const absl::Time deadline = SteadyNow() + timeout;
  while (access(path.c_str(), F_OK) != 0) {
    if (const std::optional<Exit> ended = Wait(absl::Milliseconds(2))) {
      // Between the two looks it may have done all that it had to.
      if (ended->code == 0 && access(path.c_str(), F_OK) == 0) break;
      return absl::UnavailableError(
          absl::StrCat("could not start (", ended->ToString(), ")"));
    }
    if (stop.stop_requested()) return absl::CancelledError("told to stop");
    if (SteadyNow() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "has not started after ", absl::FormatDuration(timeout)));
    }
  }
  return absl::OkStatus();
}

void Subprocess::Signal(int signal, bool whole_group) {
  MutexLock lock(&impl_->mu);
  if (impl_->exit) return;
  kill(whole_group && impl_->group > 0 ? -impl_->group : impl_->pid, signal);
}

std::string Subprocess::Exit::ToString() const {
  if (signal == 0) return absl::StrCat("exit ", code);
  const char* description = sigdescr_np(signal);
  return absl::StrCat("signal ", signal, " (",
                      description == nullptr ? "unknown" : description, ")");
}

std::string ProcessLimitHint() {
  return "this user or container has all the processes and threads that it may "
         "have: end some, or raise the limit (ulimit -u; pids.max of the "
         "cgroup)";
}

std::string FindOnPath(const std::string& name) {
  if (name.find('/') != name.npos) {
    return access(name.c_str(), X_OK) == 0 ? name : "";
  }
  const char* path = getenv("PATH");
  for (const absl::string_view folder :
       absl::StrSplit(path != nullptr ? path : "", ':')) {
    const std::string file = absl::StrCat(folder, "/", name);
    if (!folder.empty() && access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

std::string ProgramFolder() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0) return ".";
  const std::string full(path, static_cast<size_t>(length));
  return full.substr(0, full.rfind('/'));
}

}  // namespace flotilla
