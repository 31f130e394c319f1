#ifndef FLOTILLA_SERVICES_BASE_RUN_FOLDER_H_
#define FLOTILLA_SERVICES_BASE_RUN_FOLDER_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace flotilla {

// `path` from the root, without the "/" that a shell completes a folder's name with:
// of that, the parent is the folder itself.
std::filesystem::path WholePath(const std::string& path);

// A run's folder as README.md describes it: the only place that knows where in
// it anything is.
class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  // The run's id: the last part of the path.
  std::string name() const;

  std::string config() const { return path_ + "/config.textproto"; }
  // The specification (EnvSpec) of what it learns in.
  std::string environment() const { return path_ + "/environment.textproto"; }
  std::string metrics() const { return path_ + "/metrics.jsonl"; }
  // Of checkpoints, by whoever follows the run.
  std::string evaluations() const { return path_ + "/evaluations.jsonl"; }
  std::string tensorboard() const { return path_ + "/tensorboard"; }
  std::string summary() const { return path_ + "/summary.json"; }
  // What changes the run takes it, unless it has TLS or a token from elsewhere.
  // What was changed in flight, and from which update on (v1.Changes).
  std::string changes() const { return path_ + "/changes.textproto"; }
  std::string token() const { return path_ + "/token"; }
  // The secret of a learner's slot, which all its incarnations have.
  std::string secret(const std::string& member_id) const;
  std::string topology() const { return path_ + "/topology.textproto"; }
  std::string lock() const { return path_ + "/.lock"; }

  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string latest_checkpoint() const { return checkpoints() + "/latest"; }

  std::string coordinator_address() const {
    return path_ + "/coordinator.address";
  }
  // Where its /metrics is, if that was asked for.
  std::string metrics_address() const { return path_ + "/metrics.address"; }
  std::string coordinator_journal() const {
    return path_ + "/coordinator.journal";
  }

  // Games that can be seen again; see proto/flotilla/v1/episodes.proto.
  std::string episodes() const { return path_ + "/episodes"; }
  std::string training_games() const { return episodes() + "/training.games"; }
  std::string evaluation_games(int64_t round) const;

  std::string logs() const { return path_ + "/logs"; }
  std::string coordinator_log() const { return logs() + "/coordinator.log"; }
  std::string rank_log(int rank) const;
  // The last words of a learner that failed, for its launcher.
  std::string rank_error(int rank) const;
  // What the launcher of another node than node 0 hands to its learners.
  std::string launcher_config(int first_rank) const;

  // Whether a run has been here: it has a configuration, metrics or
  // checkpoints.
  bool HoldsRun() const;
  bool HasCheckpoint() const;

  // Makes the folder, logs/ and, for us alone, secrets/. Errors, naming the path:
  // kInvalidArgument if it can never be there, kUnavailable.
  absl::Status Make() const;

  // Whether it is there, or can be made, as far as that can be told without doing so.
  // Errors: kInvalidArgument, as Make's.
  absl::Status MayBeMade() const;

 private:
  std::string path_;
};

// One checkpoint's folder; learner/checkpoint/checkpoint.h says what is in it.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string path) : path_(std::move(path)) {}

  std::string config() const { return path_ + "/config.textproto"; }
  std::string progress() const { return path_ + "/progress.json"; }
  // Whether the weights are there, which no other folder has.
  bool Exists() const;

 private:
  std::string path_;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_RUN_FOLDER_H_
