#ifndef FLOTILLA_LEARNER_TRAINING_TRAINER_H_
#define FLOTILLA_LEARNER_TRAINING_TRAINER_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "learner/torch.h"
#include "learner/training/run_outcome.h"
#include "services/base/shutdown.h"
#include "services/coordinator/coordinator_client.h"
#include "services/rpc/credentials.h"

namespace flotilla {

struct TrainerOptions {
  v1::RunConfig run_config;  // resolved
  v1::RunConfig config;      // the same with one learner's sizes
  std::string run_folder;
  std::string member_id;    // "learner/NODE/LOCAL"
  int first_rank = 0;       // asked for; names its env workers and seeds
  int64_t incarnation = 0;  // grows with each restart of this learner
  std::string resume;       // a checkpoint's folder; "": a fresh run
  std::string coordinator;  // HOST:PORT
  RpcCredentials credentials;
  int local_world_size = 1;
  torch::Device device = torch::kCPU;
  // Ends the process, from another thread: training hangs.
  std::function<void(const absl::Status&)> give_up;
};

// Makes what a rank trains with (env workers, algorithm, rollouts), from a
// checkpoint if there is one, and runs a TrainingLoop with it until the run is
// over.
//
// Blocks until the end. Errors: kInvalidArgument or kFailedPrecondition for a
// configuration or checkpoint that does not fit; kResourceExhausted for env
// workers past their restart budget; kInternal for a loss that is not finite;
// kDeadlineExceeded when no generation forms; kResourceExhausted, with who gave up, if
// the run failed elsewhere.
absl::StatusOr<RunOutcome> Train(const TrainerOptions& options,
                                 CoordinatorClient* coordinator,
                                 const ShutdownSignals& signals);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_TRAINER_H_
