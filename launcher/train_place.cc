#include "launcher/train_place.h"

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "launcher/config_finder.h"
#include "launcher/runs.h"
#include "services/base/run_summary.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

// A run folder named after the job, where several launchers have to agree.
std::string SharedRunPath(const std::string& name, const Topology& topology) {
  if (!topology.has_peers()) return "";
  if (const char* job = std::getenv("SLURM_JOB_ID")) {
    return absl::StrCat("runs/", name, "-slurm", job);
  }
  if (const char* run = std::getenv("TORCHELASTIC_RUN_ID");
      run != nullptr && std::string(run) != "none") {
    return absl::StrCat("runs/", name, "-", run);
  }
  return "";
}

absl::StatusOr<std::string> ChooseRunDir(const TrainFlags& flags,
                                         const std::string& name,
                                         const Topology& topology,
                                         bool* is_named_here) {
  if (flags.run_dir) return *flags.run_dir;
  const std::string shared = SharedRunPath(name, topology);
  if (!shared.empty()) return shared;
  if (topology.has_peers()) {
    return absl::InvalidArgumentError(
        "several launchers share this run's folder: name it with --run-dir, on "
        "storage that all nodes see");
  }
  if (!flags.resume || *flags.resume != "latest") {
    *is_named_here = true;
    return NewRunPath(name, absl::Now());
  }
  const std::string newest = NewestRunPath(name);
  if (newest.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--resume: there is no run \"runs/", name,
                     "-DATE-TIME\" to go on with; name its folder with "
                     "--run-dir"));
  }
  return newest;
}

// A PATH that is a run's folder, or a checkpoint inside one, also says where
// the run lives, unless --run-dir does.
absl::Status TakeResumePath(TrainFlags* flags) {
  if (!flags->resume || *flags->resume == "latest") return absl::OkStatus();
  const std::string path = *flags->resume;
  // A checkpoint holds a config.textproto as a run's folder does.
  if (!CheckpointFolder(path).Exists() && RunFolder(path).HoldsRun()) {
    if (!flags->run_dir) {
      flags->run_dir = path;
      flags->resume = "latest";
      return absl::OkStatus();
    }
    flags->resume = RunFolder(path).latest_checkpoint();
    std::error_code error;
    if (fs::equivalent(path, *flags->run_dir, error)) flags->resume = "latest";
    return absl::OkStatus();
  }
  if (!CheckpointFolder(path).Exists()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--resume ", path,
                     " is neither a run's folder nor a checkpoint (no "
                     "weights.safetensors)"));
  }
  const fs::path checkpoint = WholePath(path);
  flags->resume = checkpoint.string();
  const fs::path run = checkpoint.parent_path().parent_path();
  if (!flags->run_dir && RunFolder(run).HoldsRun()) flags->run_dir = run;
  return absl::OkStatus();
}

// By Slurm, after a preemption or the loss of a node, or by Kubernetes, which does not
// say whether it has.
bool MayBeStartedAgain() {
  const char* restarts = std::getenv("SLURM_RESTART_COUNT");
  return (restarts != nullptr && std::atoi(restarts) > 0) ||
         std::getenv("JOB_COMPLETION_INDEX") != nullptr;
}

// A run that ended before it had trained is in nobody's way.
bool HasTrained(const RunFolder& folder) {
  std::error_code error;
  for (const std::string& path : {folder.metrics(), folder.checkpoints()}) {
    if (fs::exists(path, error) && !fs::is_empty(path, error)) return true;
  }
  const auto summary = ReadRunSummary(folder.summary());
  return summary.ok() ? summary->updates() > 0
                      : !absl::IsNotFound(summary.status());
}

}  // namespace

bool TrainPlace::GoesOnInPlace() const {
  std::error_code error;
  return source_run == run_dir || fs::equivalent(source_run, run_dir, error);
}

absl::StatusOr<TrainPlace> FindTrainPlace(TrainFlags flags,
                                          const Topology& topology) {
  RETURN_IF_ERROR(TakeResumePath(&flags));
  TrainPlace place;
  place.resume = flags.resume;
  std::string name;
  if (flags.config) {
    ASSIGN_OR_RETURN(place.config_path, FindConfig(*flags.config));
    name = ConfigName(place.config_path);
  } else if (!flags.resume) {
    return absl::InvalidArgumentError(
        "name a configuration: `flotilla train cartpole_ppo` "
        "(`flotilla configs` lists them)");
  }
  ASSIGN_OR_RETURN(place.run_dir,
                   ChooseRunDir(flags, name, topology, &place.is_named_here));
  const RunFolder folder(place.run_dir);
  if (!flags.config) {
    place.config_path = folder.config();
    std::error_code error;
    if (!fs::exists(place.config_path, error)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--resume: there is no run in ", place.run_dir,
                       "; name a configuration to start one there"));
    }
  }
  if (flags.resume && *flags.resume != "latest") {
    place.source_run =
        fs::path(*flags.resume).parent_path().parent_path().string();
    // Started again by what watches over it, a job goes on with what it has made of
    // the checkpoint.
    if (!place.GoesOnInPlace() &&
        (topology.has_peers() || MayBeStartedAgain()) && HasTrained(folder)) {
      place.notice = absl::StrCat("resume: ", place.run_dir,
                                  " holds a run, which goes on from its own "
                                  "newest checkpoint, not from ",
                                  *flags.resume);
      flags.resume = place.resume = "latest";
    }
  }
  if (flags.resume == "latest") place.source_run = place.run_dir;
  // A run that goes on in its own folder begins anew there; another has only what it
  // is given.
  if (place.resume && *place.resume != "latest" &&
      !CheckpointFolder(*place.resume).Exists()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--resume ", place.source_run,
                     ": that run has no checkpoint yet; wait for its first "
                     "one, name another run's, or leave --resume out to begin "
                     "at step 0"));
  }
  // Where launchers share a folder, the one that made it may be ahead of us.
  if (topology.hosts_coordinator && HasTrained(folder) &&
      !place.GoesOnInPlace()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the folder ", place.run_dir, " holds ",
                     flags.resume ? "another run; go on with that (--resume "
                                    "without a checkpoint)"
                                  : "a run already; go on with it (--resume)",
                     ", or choose another --run-dir"));
  }
  // The same command line starts a job and, requeued, goes on with it.
  if (place.resume == "latest" && !folder.HasCheckpoint()) place.resume.reset();
  return place;
}

}  // namespace flotilla
