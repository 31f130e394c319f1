#ifndef FLOTILLA_LAUNCHER_GIVEN_RANK_H_
#define FLOTILLA_LAUNCHER_GIVEN_RANK_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/variables.h"

namespace flotilla {

// Somebody else's launcher (torchrun, srun, mpirun) started this process as one
// of many and told it which. What each of them says, in one form.

// Where to meet, and which variables say so.
struct NamedAddress {
  std::string text;  // HOST:PORT
  std::string source;
};

struct GivenRank {
  std::string set_name;  // "Slurm"
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  // With the local rank it tells this rank from all others. Numbers may be left out,
  // and where ranks go round the hosts, those of one host have several.
  int node = 0;
  // The variables these come from.
  std::string rank_source, world_source, local_source;
  // An error where the environment does not tell; a flag may.
  absl::StatusOr<NamedAddress> coordinator;
};

// The rank that the environment gives, or nullopt if it gives none. Of several
// sets the first counts: torchrun's, a Slurm job step's, Open MPI's.
// Errors: kInvalidArgument if a set is not whole or contradicts itself.
absl::StatusOr<std::optional<GivenRank>> FindGivenRank(
    const Variables& variables);

// Whether this process is a task of a Slurm job step: not a batch script, an
// allocation's shell or `srun --pty`, whose variables describe the shell and
// not us.
bool InSlurmStep(const Variables& variables);

// For a launcher on each node of a Slurm step: the first host. Errors:
// kInvalidArgument if the step runs several tasks on a node, or its host list
// does not parse.
absl::StatusOr<NamedAddress> SlurmMeetingPoint(const Variables& variables);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_GIVEN_RANK_H_
