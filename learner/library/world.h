#ifndef FLOTILLA_LEARNER_LIBRARY_WORLD_H_
#define FLOTILLA_LEARNER_LIBRARY_WORLD_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "learner/collective/collective.h"
#include "services/coordinator/coordinator_client.h"
#include "services/rpc/credentials.h"

namespace flotilla {

struct WorldOptions {
  std::string coordinator = "127.0.0.1:29400";  // HOST:PORT
  int rank = 0;                                 // to ask for
  int local_rank = 0;  // on this host, and the GPU's number
  int local_world_size = 1;
  std::string backend = "auto";  // "nccl": a GPU a rank; "gloo": CPUs
  bool cuda = false;             // tensors to combine are on GPU `local_rank`
  absl::Duration join_timeout = absl::Minutes(10);
  absl::Duration timeout = absl::Minutes(10);  // of one collective
  RpcCredentials credentials = {};
};

// For training loops of your own: this process's place among the processes of a
// data-parallel job, met through a coordinator (`flotilla coordinator`) that
// was told how many to wait for (--min_learners). learner/examples has a
// program that uses it.
//
// Not thread-safe.
class World {
 public:
  // Joins, and blocks until all are there.
  // Errors: kInvalidArgument for a backend that is not provided;
  // kFailedPrecondition for one that does not fit this machine; kUnavailable or
  // kDeadlineExceeded, naming who is missing, after join_timeout.
  static absl::StatusOr<std::unique_ptr<World>> Join(
      const WorldOptions& options);
  // Leaves. The others go on only if they do not wait for this rank again.
  ~World();

  int rank() const { return collective_->rank(); }
  int world_size() const { return collective_->world_size(); }
  Collective* collective() { return collective_.get(); }

  // Whether any rank says so. Blocks for all. For inputs of uneven length: go
  // on while `AnyRank(mine are left)`, with zero samples where they are not.
  // Errors: those of Collective::AllReduceSum.
  absl::StatusOr<bool> AnyRank(bool here);

 private:
  World(std::unique_ptr<CoordinatorClient> coordinator,
        std::unique_ptr<Collective> collective, torch::Device device)
      : coordinator_(std::move(coordinator)),
        collective_(std::move(collective)),
        device_(device) {}

  std::unique_ptr<CoordinatorClient> coordinator_;
  std::unique_ptr<Collective> collective_;
  const torch::Device device_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_LIBRARY_WORLD_H_
