#ifndef FLOTILLA_SERVICES_BASE_SUBPROCESS_H_
#define FLOTILLA_SERVICES_BASE_SUBPROCESS_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace flotilla {

struct SubprocessOptions {
  std::vector<std::string> argv = {};  // argv[0] is a path
  std::vector<std::pair<std::string, std::string>> env = {};  // or replaced
  std::string log_path = {};  // stdout and stderr are appended; "": inherited
  bool new_process_group = true;
  // For a program that may know nothing of lifelines: a process beside it, in
  // its group, kills the group when we are gone.
  bool guarded = false;
};

// A child process of ours that cannot outlive us: it holds the read end of a
// lifeline pipe (FLOTILLA_LIFELINE_FD) and ends itself when the pipe breaks,
// even after our kill -9; see services/base/lifeline.h for the child's half.
//
// Thread-safe.
class Subprocess {
 public:
  // Starts the program. Safe in a process that runs gRPC and threads.
  // Errors: kNotFound or kPermissionDenied naming the program.
  static absl::StatusOr<std::unique_ptr<Subprocess>> Start(
      const SubprocessOptions& options);

  // Kills (SIGKILL, whole process group) and reaps what still runs.
  ~Subprocess();

  pid_t pid() const;

  // How it ended, once it has: "exit 1", "signal 9 (Killed)"; nullopt while it
  // runs. Never blocks.
  struct Exit {
    int code = 0;    // exit status, or 128 + signal
    int signal = 0;  // 0 if it exited
    std::string ToString() const;
  };
  std::optional<Exit> Poll();

  // Blocks until it ends or `timeout` passes (nullopt).
  std::optional<Exit> Wait(absl::Duration timeout);

  // Blocks until `path` exists: our servers make a file, or a socket, when they
  // serve. Errors: kUnavailable if the process has ended instead, with how;
  // kDeadlineExceeded; kCancelled when `stop` is requested.
  absl::Status AwaitFile(const std::string& path, absl::Duration timeout,
                         std::stop_token stop = {});

  // Sends `signal` to the process, or to its whole group. No-op once reaped.
  void Signal(int signal, bool whole_group = false);

 private:
  struct Impl;
  explicit Subprocess(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Why no process or thread can be started (EAGAIN, "Resource temporarily
// unavailable"), and what helps.
std::string ProcessLimitHint();

// `name` if it is a path to a program, else where PATH has it; "" if nowhere.
std::string FindOnPath(const std::string& name);

// The folder of the running program, where its siblings are.
std::string ProgramFolder();

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_SUBPROCESS_H_
