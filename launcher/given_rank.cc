#include "launcher/given_rank.h"

#include <climits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/host_list.h"
#include "services/base/host_name.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

constexpr char kLoopback[] = "127.0.0.1";
constexpr int kSlurmPorts = 1000;  // from kDefaultPort

absl::Status Invalid(const std::string& message) {
  return absl::InvalidArgumentError(message);
}

absl::Status CheckConsistent(const GivenRank& place) {
  const bool fits = place.rank < place.world_size &&
                    place.local_rank < place.local_world_size &&
                    place.local_world_size <= place.world_size &&
                    place.local_rank <= place.rank;
  if (fits) return absl::OkStatus();
  return Invalid(
      absl::StrCat(place.set_name, " contradicts itself: rank ", place.rank,
                   " of ", place.world_size, ", local rank ", place.local_rank,
                   " of ", place.local_world_size, " (", place.rank_source,
                   ", ", place.world_source, ", ", place.local_source, ")"));
}

// Where nobody numbers the nodes. Hosts may run unequally many ranks, and ranks may
// go round the hosts: with this number the local rank tells each from all others,
// which the quotient by local_world_size does not.
int NodeOf(const GivenRank& place) { return place.rank - place.local_rank; }

// On one host the coordinator needs no name that others could resolve, and no
// TLS.
NamedAddress OnThisHost(int port, const std::string& source) {
  return {absl::StrCat(kLoopback, ":", port), source};
}

// ---- torchrun

bool HasTorchrun(const Variables& variables) {
  return variables.Has("RANK") || variables.Has("LOCAL_RANK") ||
         variables.Has("WORLD_SIZE");
}

absl::StatusOr<NamedAddress> TorchrunMeetingPoint(const Variables& variables,
                                                  const GivenRank& place) {
  int port = kDefaultPort;
  std::string source = "default port";
  if (variables.Has("MASTER_PORT")) {
    ASSIGN_OR_RETURN(port, variables.Int("MASTER_PORT", 1, 65534));
    source = "MASTER_PORT";
  }
  // Then torchrun's own store listens on MASTER_PORT already.
  if (variables.Text("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    ++port;
    source = "MASTER_PORT + 1: torchrun listens on MASTER_PORT";
  }
  if (place.local_world_size == place.world_size) {
    return OnThisHost(port, source);
  }
  if (!variables.Has("MASTER_ADDR")) {
    return Invalid(
        "RANK, LOCAL_RANK and WORLD_SIZE are set, but not MASTER_ADDR: set it "
        "to the host of rank 0, or give --coordinator HOST:PORT");
  }
  return NamedAddress{
      HostAndPort(variables.Text("MASTER_ADDR"), absl::StrCat(port)),
      absl::StrCat("MASTER_ADDR, ", source)};
}

absl::StatusOr<GivenRank> TorchrunRank(const Variables& variables) {
  RETURN_IF_ERROR(
      variables.Require({"RANK", "LOCAL_RANK", "WORLD_SIZE"}, "torchrun's"));
  GivenRank place;
  place.set_name = "torchrun";
  place.rank_source = "RANK";
  place.world_source = "WORLD_SIZE";
  place.local_source = "LOCAL_RANK";
  ASSIGN_OR_RETURN(place.world_size,
                   variables.Int("WORLD_SIZE", 1, kMostRanks));
  ASSIGN_OR_RETURN(place.rank, variables.Int("RANK", 0, kMostRanks));
  ASSIGN_OR_RETURN(place.local_rank,
                   variables.Int("LOCAL_RANK", 0, kMostRanks));
  place.local_world_size = place.world_size;
  if (variables.Has("LOCAL_WORLD_SIZE")) {
    ASSIGN_OR_RETURN(place.local_world_size,
                     variables.Int("LOCAL_WORLD_SIZE", 1, kMostRanks));
  } else if (place.rank != place.local_rank) {
    return Invalid(absl::StrCat(
        "RANK is ", place.rank, " and LOCAL_RANK is ", place.local_rank,
        ", so there are several nodes, but LOCAL_WORLD_SIZE is missing: set it "
        "to the number of ranks on this node"));
  }
  place.node = NodeOf(place);
  if (variables.Has("GROUP_RANK")) {
    ASSIGN_OR_RETURN(place.node, variables.Int("GROUP_RANK", 0, kMostRanks));
  }
  place.coordinator = TorchrunMeetingPoint(variables, place);
  return place;
}

// ---- Slurm

std::string SlurmTasksName(const Variables& variables) {
  return variables.Either("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS");
}
std::string SlurmNodesName(const Variables& variables) {
  return variables.Either("SLURM_STEP_NUM_NODES", "SLURM_NNODES");
}
std::string SlurmListName(const Variables& variables) {
  return variables.Either("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
}

// A number of tasks or nodes that can be one.
bool ParseCount(const std::string& text, int* count) {
  return absl::SimpleAtoi(text, count) && *count >= 1 && *count <= kMostRanks;
}

// The tasks on node `node`, from "2(x3),1".
absl::StatusOr<int> TasksOnNode(const std::string& text, int node) {
  int64_t seen = 0;
  for (const std::string& part :
       std::vector<std::string>(absl::StrSplit(text, ','))) {
    const size_t open = part.find("(x");
    int tasks = 0, nodes = 1;
    const bool good =
        ParseCount(part.substr(0, open), &tasks) &&
        (open == part.npos ||
         (absl::EndsWith(part, ")") &&
          ParseCount(part.substr(open + 2, part.size() - open - 3), &nodes)));
    if (!good) break;
    seen += nodes;
    if (node < seen) return tasks;
  }
  return Invalid(absl::StrCat("SLURM_STEP_TASKS_PER_NODE is \"", text,
                              "\", which says nothing of node ", node));
}

// Jobs that share a host must not meet: each has a port of its own.
absl::StatusOr<int> SlurmPort(const Variables& variables) {
  RETURN_IF_ERROR(variables.Require({"SLURM_JOB_ID"}, "a Slurm job step's"));
  ASSIGN_OR_RETURN(const int job, variables.Int("SLURM_JOB_ID", 0, INT_MAX));
  return kDefaultPort + job % kSlurmPorts;
}

absl::StatusOr<NamedAddress> FirstHost(const Variables& variables) {
  const std::string name = SlurmListName(variables);
  ASSIGN_OR_RETURN(const std::vector<std::string> hosts,
                   ParseHostList(variables.Text(name)));
  ASSIGN_OR_RETURN(const int port, SlurmPort(variables));
  return NamedAddress{
      absl::StrCat(hosts[0], ":", port),
      absl::StrCat("the first host of ", name, ", port by SLURM_JOB_ID")};
}

absl::StatusOr<GivenRank> SlurmRank(const Variables& variables) {
  const std::string tasks = SlurmTasksName(variables);
  const std::string nodes = SlurmNodesName(variables);
  RETURN_IF_ERROR(
      variables.Require({"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", tasks,
                         nodes, SlurmListName(variables)},
                        "a Slurm job step's"));
  GivenRank place;
  place.set_name = "Slurm";
  place.rank_source = "SLURM_PROCID";
  place.world_source = tasks;
  place.local_source = "SLURM_LOCALID";
  ASSIGN_OR_RETURN(place.rank, variables.Int("SLURM_PROCID", 0, kMostRanks));
  ASSIGN_OR_RETURN(place.world_size, variables.Int(tasks, 1, kMostRanks));
  ASSIGN_OR_RETURN(place.local_rank,
                   variables.Int("SLURM_LOCALID", 0, kMostRanks));
  ASSIGN_OR_RETURN(place.node, variables.Int("SLURM_NODEID", 0, kMostRanks));
  ASSIGN_OR_RETURN(const int num_nodes, variables.Int(nodes, 1, kMostRanks));
  const std::string per_node =
      variables.Either("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  if (variables.Has(per_node)) {
    ASSIGN_OR_RETURN(place.local_world_size,
                     TasksOnNode(variables.Text(per_node), place.node));
  } else {
    place.local_world_size = (place.world_size + num_nodes - 1) / num_nodes;
  }
  if (num_nodes > 1) {
    place.coordinator = FirstHost(variables);
  } else {
    ASSIGN_OR_RETURN(const int port, SlurmPort(variables));
    place.coordinator = OnThisHost(port, "port by SLURM_JOB_ID");
  }
  return place;
}

// ---- Open MPI

bool HasOpenMpi(const Variables& variables) {
  return variables.Has("OMPI_COMM_WORLD_RANK") ||
         variables.Has("OMPI_COMM_WORLD_SIZE") ||
         variables.Has("OMPI_COMM_WORLD_LOCAL_RANK");
}

absl::StatusOr<NamedAddress> OpenMpiMeetingPoint(const Variables& variables,
                                                 const GivenRank& place) {
  if (place.local_world_size == place.world_size) {
    return OnThisHost(kDefaultPort, "default");
  }
  if (!variables.Has("MASTER_ADDR")) {
    return Invalid(
        "Open MPI does not tell where rank 0 runs: give --coordinator "
        "HOST:PORT, or set MASTER_ADDR (mpirun -x MASTER_ADDR)");
  }
  const std::string port = variables.Has("MASTER_PORT")
                               ? variables.Text("MASTER_PORT")
                               : absl::StrCat(kDefaultPort);
  return NamedAddress{HostAndPort(variables.Text("MASTER_ADDR"), port),
                      "MASTER_ADDR"};
}

absl::StatusOr<GivenRank> OpenMpiRank(const Variables& variables) {
  const std::string at = "OMPI_COMM_WORLD_";
  RETURN_IF_ERROR(variables.Require(
      {at + "RANK", at + "SIZE", at + "LOCAL_RANK", at + "LOCAL_SIZE"},
      "Open MPI's"));
  GivenRank place;
  place.set_name = "Open MPI";
  place.rank_source = at + "RANK";
  place.world_source = at + "SIZE";
  place.local_source = at + "LOCAL_RANK";
  ASSIGN_OR_RETURN(place.rank, variables.Int(at + "RANK", 0, kMostRanks));
  ASSIGN_OR_RETURN(place.world_size, variables.Int(at + "SIZE", 1, kMostRanks));
  ASSIGN_OR_RETURN(place.local_rank,
                   variables.Int(at + "LOCAL_RANK", 0, kMostRanks));
  ASSIGN_OR_RETURN(place.local_world_size,
                   variables.Int(at + "LOCAL_SIZE", 1, kMostRanks));
  place.node = NodeOf(place);
  place.coordinator = OpenMpiMeetingPoint(variables, place);
  return place;
}

}  // namespace

bool InSlurmStep(const Variables& variables) {
  uint64_t step = 0;
  constexpr uint64_t kFirstPseudoStep = 0xfffffff0;  // batch, interactive, ...
  return absl::SimpleAtoi(variables.Text("SLURM_STEP_ID"), &step) &&
         step < kFirstPseudoStep && !variables.Has("SLURM_PTY_PORT");
}

absl::StatusOr<NamedAddress> SlurmMeetingPoint(const Variables& variables) {
  const std::string tasks = variables.Text(SlurmTasksName(variables));
  const std::string nodes = variables.Text(SlurmNodesName(variables));
  if (!tasks.empty() && !nodes.empty() && tasks != nodes) {
    return Invalid(absl::StrCat("this Slurm step runs ", tasks, " tasks on ",
                                nodes,
                                " nodes; with --nnodes, start one a node (srun "
                                "--ntasks-per-node=1), or "
                                "drop --nnodes to make every task a learner"));
  }
  RETURN_IF_ERROR(
      variables.Require({SlurmListName(variables)}, "a Slurm job step's"));
  return FirstHost(variables);
}

absl::StatusOr<std::optional<GivenRank>> FindGivenRank(
    const Variables& variables) {
  GivenRank place;
  if (HasTorchrun(variables)) {
    ASSIGN_OR_RETURN(place, TorchrunRank(variables));
  } else if (InSlurmStep(variables)) {
    ASSIGN_OR_RETURN(place, SlurmRank(variables));
  } else if (HasOpenMpi(variables)) {
    ASSIGN_OR_RETURN(place, OpenMpiRank(variables));
  } else {
    return std::nullopt;
  }
  RETURN_IF_ERROR(CheckConsistent(place));
  return place;
}

}  // namespace flotilla
