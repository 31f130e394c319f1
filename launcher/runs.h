#ifndef FLOTILLA_LAUNCHER_RUNS_H_
#define FLOTILLA_LAUNCHER_RUNS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/config.pb.h"
#include "services/base/run_folder.h"

namespace flotilla {

// The one launcher that may write to a run's folder. Released with the process,
// however it ends.
class RunLock {
 public:
  // Errors: kFailedPrecondition, naming who holds it.
  static absl::StatusOr<RunLock> Take(const RunFolder& folder);

  RunLock(RunLock&& other);
  RunLock(const RunLock&) = delete;
  ~RunLock();

 private:
  explicit RunLock(int fd) : fd_(fd) {}
  int fd_;
};

// A folder for a new run, "runs/cartpole_ppo-20260131-235959", that does not
// exist yet.
std::string NewRunPath(const std::string& config_name, absl::Time now);

// The newest folder "runs/<config_name>-*" that holds a run, or "" if none. An
// empty name: of any configuration.
std::string NewestRunPath(const std::string& config_name);

// Whether a run of `before` can go on as `after`: the same environment,
// algorithm and model. Errors: kInvalidArgument naming what differs.
absl::Status CheckResumable(const v1::RunConfig& before,
                            const v1::RunConfig& after);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_RUNS_H_
