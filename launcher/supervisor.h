#ifndef FLOTILLA_LAUNCHER_SUPERVISOR_H_
#define FLOTILLA_LAUNCHER_SUPERVISOR_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "launcher/restart_budget.h"
#include "services/base/exit_codes.h"
#include "services/base/subprocess.h"

namespace flotilla {

// What one start of a learner has to be told.
struct LearnerStart {
  int index = 0;             // from 0, among those of this launcher
  uint64_t incarnation = 0;  // grows with each start of the same learner
  int restarts = 0;
  bool alone = false;  // a restart while none of this launcher's learners lives
};

struct SupervisorOptions {
  int num_learners = 1;
  std::function<SubprocessOptions(const LearnerStart&)> command;

  uint64_t first_incarnation = 1;
  int max_restarts = 3;  // of each learner, in any `restart_window`
  absl::Duration restart_window = absl::Minutes(10);
  absl::Duration save_and_stop = absl::Seconds(60);  // then SIGKILL

  // What people call learner `index`, where its log is, and the one line it
  // left about its failure ("" if none).
  std::function<std::string(int index)> name;
  std::function<std::string(int index)> log_path;
  std::function<std::string(int index)> error_path;

  // The first stop signal this process got (0: none), and whether the user does
  // not want to wait.
  std::function<int()> stop_signal = [] { return 0; };
  std::function<bool()> stop_now = [] { return false; };

  // Whether the run has given up learner `index`, whose process is `pid`: one
  // that is stopped or stuck lives and is of no use. It is killed.
  std::function<bool(int index, pid_t pid)> given_up = [](int, pid_t) {
    return false;
  };

  // Whether the run has ended well, whatever becomes of its learners now. Asked
  // when one dies.
  std::function<bool()> run_is_over = [] { return false; };

  // Run all the time, about 50 times a second: what else has to be watched.
  // An error ends the job.
  std::function<absl::Status()> tick = [] { return absl::OkStatus(); };

  // Says one line to people.
  std::function<void(const std::string&)> notice = [](const std::string&) {};
};

struct SupervisorResult {
  int exit_code = 0;    // of `flotilla help --man`
  std::string failure;  // the root cause, several lines; "" if none
  int restarts = 0;
};

// Starts learners, replaces those that die, forwards stop signals, and ends
// only when none of them runs any more.
//
//   a learner dies    -> started again after a pause, same name, next
//                        incarnation, until its budget is spent; then all are
//                        killed and the earliest failure is the root cause. So
//                        it is when it cannot be started again for a moment
//   one is given up   -> killed: that is a death
//   a stop signal     -> forwarded once to all; they save and exit with 130
//                        (SIGINT) or 75; SIGKILL for those that take longer than
//                        save_and_stop, or at once at a second SIGINT
//
// Not thread-safe.
class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options);
  ~Supervisor();  // kills what still runs

  // Blocks until the job has ended.
  SupervisorResult Run();

 private:
  struct Slot;

  void Start(Slot* slot);
  void Reap(Slot* slot);
  void OnCrash(Slot* slot, const Subprocess::Exit& exit);
  void StartAgain(Slot* slot, const std::string& trouble);
  void ForwardStop();
  void EndStop();
  bool SomeoneEnded() const;
  bool AllDone() const;
  void Fail(int exit_code, const std::string& failure);
  std::string RootCause(const std::string& headline) const;
  SupervisorResult Verdict() const;

  const SupervisorOptions options_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::optional<SupervisorResult> failed_;
  int forwarded_ = 0;  // the stop signal that was
  absl::Time stop_deadline_ = absl::InfiniteFuture();
};

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_SUPERVISOR_H_
