#ifndef FLOTILLA_LAUNCHER_TOPOLOGY_H_
#define FLOTILLA_LAUNCHER_TOPOLOGY_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace flotilla {

inline constexpr int kDefaultPort = 29400;

// What the command line says about where this launcher stands.
struct TopologyFlags {
  std::optional<std::string> nproc_per_node = {};  // N, "auto" or "gpu"
  std::optional<std::string> nnodes = {};          // N or MIN:MAX
  std::optional<int> node_rank = {};
  std::optional<std::string> coordinator = {};  // HOST[:PORT]
  std::optional<std::string> master_addr = {};
  std::optional<int> master_port = {};
  std::optional<std::string> rdzv_endpoint = {};  // HOST[:PORT]
  bool standalone = false;
  // Learners per node of the run that is resumed: what nproc_per_node is where
  // it is not given.
  std::optional<int> resumed_learners = {};
};

using Environment = std::map<std::string, std::string>;

// Which learners this launcher starts, which world they belong to, and where
// that world meets.
struct Topology {
  int min_nodes = 1;
  int max_nodes = 1;  // above min_nodes: elastic
  int node_rank = 0;  // of one_rank: GivenRank's node

  // Learners to start here. Their ranks are first_rank, first_rank + 1, ...
  // where ranks are fixed.
  int num_learners = 1;
  int first_local_rank = 0;
  int local_world_size = 1;  // learners on this node, of all launchers
  int first_rank = 0;
  int min_world_size = 1;
  int max_world_size = 1;

  // The environment gave this process a rank: it supervises that one learner.
  bool one_rank = false;

  // HOST:PORT. `port_named` is false where any free port of this host will do.
  std::string coordinator;
  bool port_named = false;
  // The launcher that starts the coordinator when nothing listens there yet.
  bool hosts_coordinator = true;

  // Where each value comes from, for people: {"nodes", "2", "--nnodes"}.
  struct Source {
    std::string name;
    std::string value;
    std::string source;
  };
  std::vector<Source> sources;

  // Whether other launchers belong to this run.
  bool has_peers() const { return max_world_size > num_learners; }
  bool elastic() const { return max_world_size > min_world_size; }
};

// Works out the topology. Pure: everything it depends on is passed in.
//
// Precedence: flags that name nodes (--standalone, --nnodes, --node-rank), then
// the first of these that is there: RANK/LOCAL_RANK/WORLD_SIZE (torchrun), a
// Slurm job step, Open MPI, JOB_COMPLETION_INDEX (a Kubernetes indexed Job);
// then one machine. `gpus` is how many this node has.
//
// Errors: kInvalidArgument on a value that is none, on flags that contradict
// each other or the environment, and on a set of variables that is not whole,
// naming what is missing.
absl::StatusOr<Topology> DetectTopology(const TopologyFlags& flags,
                                        const Environment& environment,
                                        int gpus);

// The process's own environment.
Environment CurrentEnvironment();

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_TOPOLOGY_H_
