#ifndef FLOTILLA_LAUNCHER_RUNS_H_
#define FLOTILLA_LAUNCHER_RUNS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/base/run_folder.h"

namespace flotilla {

// The one launcher that may write to a run's folder. Released with the process,
// however it ends.
//
// Held on the folder itself, so that removing RUN/.lock lets nobody in; and on
// that file, which says who holds it and counts alone where folders have no
// locks (NFS).
class RunLock {
 public:
  // Errors: kFailedPrecondition, naming who holds it.
  static absl::StatusOr<RunLock> Take(const RunFolder& folder);

  // Makes the file again if it was removed. Errors: kNotFound if the folder is
  // not where it was; kFailedPrecondition if somebody else has the file now.
  absl::Status Keep();

  RunLock(RunLock&& other);
  RunLock(const RunLock&) = delete;
  ~RunLock();

 private:
  explicit RunLock(RunFolder folder) : folder_(std::move(folder)) {}
  absl::Status TakeFile();

  const RunFolder folder_;
  int folder_fd_ = -1;
  int file_fd_ = -1;
};

// A folder for a new run, "runs/cartpole_ppo-20260131-235959", that does not
// exist yet.
std::string NewRunPath(const std::string& config_name, absl::Time now);

// Makes that folder. False if somebody else did so meanwhile.
bool ClaimRunPath(const std::string& path);

// The newest folder that holds a run and is named by NewRunPath, or after a Slurm job,
// for that configuration; "" if none. An empty name: of any, whatever its folder's.
std::string NewestRunPath(const std::string& config_name);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_RUNS_H_
