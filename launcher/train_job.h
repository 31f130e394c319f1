#ifndef FLOTILLA_LAUNCHER_TRAIN_JOB_H_
#define FLOTILLA_LAUNCHER_TRAIN_JOB_H_

#include <optional>
#include <string>
#include <vector>

#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/coordinator.pb.h"
#include "launcher/core_plan.h"
#include "launcher/runs.h"
#include "launcher/topology.h"
#include "launcher/trackers.h"
#include "services/base/run_folder.h"
#include "services/base/shutdown.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// One launcher's part of a run, after everything about it is known and checked.
struct TrainJob {
  v1::RunConfig config;  // resolved
  RunFolder folder{""};
  bool claims_folder = false;  // its name is ours: see ClaimRunPath
  // Copied into the folder before anything starts.
  struct Copy {
    std::string from, to;
  };
  std::vector<Copy> copies;
  Topology topology;
  std::optional<std::string> resume;  // "latest" or a checkpoint
  v1::Changes changes;                // in flight, of the run that goes on
  std::vector<std::string> notices;   // for people, once it starts
  std::string nothing_left;  // why a resumed run is over already; "": it is not
  RunLock* lock = nullptr;   // borrowed; null: another launcher holds it
  std::vector<int> device_ids;  // a GPU for each learner of this host, or none
  CorePlan cores;
  int max_restarts = 3;
  RpcCredentials credentials;
  // Of the coordinator that this launcher starts; "": nowhere, and none.
  std::string metrics_listen, metrics_token_file;
  std::string progress = "auto";
  TrackOptions track;
};

// Runs it: coordinator if it is ours, learners, progress, result. Blocks until
// all of them have ended, leaves none behind, and returns the exit code.
int RunTrainJob(const TrainJob& job, const ShutdownSignals& signals);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_TRAIN_JOB_H_
