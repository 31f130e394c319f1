#ifndef FLOTILLA_LAUNCHER_RUN_FOLDER_H_
#define FLOTILLA_LAUNCHER_RUN_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/config.pb.h"

namespace flotilla {

// A run's folder as product.md describes it.
class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  // The run's id: the last part of the path.
  std::string name() const;
  std::string config() const { return path_ + "/config.textproto"; }
  std::string logs() const { return path_ + "/logs"; }
  std::string coordinator_address() const {
    return path_ + "/coordinator.address";
  }
  std::string summary() const { return path_ + "/summary.json"; }
  std::string latest_checkpoint() const {
    return path_ + "/checkpoints/latest";
  }
  std::string rank_log(int rank) const;
  std::string rank_error(int rank) const;

  // Whether a run has been here: it has a configuration, metrics or
  // checkpoints.
  bool HoldsRun() const;
  bool HasCheckpoint() const;

  // Makes the folder and logs/.
  absl::Status Make() const;

 private:
  std::string path_;
};

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

#endif  // FLOTILLA_LAUNCHER_RUN_FOLDER_H_
