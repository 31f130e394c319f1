#include "launcher/topology.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/given_rank.h"
#include "launcher/variables.h"
#include "services/base/device_choice.h"
#include "services/base/host_name.h"
#include "services/base/status_macros.h"

extern char** environ;

namespace flotilla {
namespace {

constexpr char kLoopback[] = "127.0.0.1";

absl::Status Invalid(const std::string& message) {
  return absl::InvalidArgumentError(message);
}

void Note(const std::string& name, const std::string& value,
          const std::string& source, Topology* topology) {
  topology->sources.push_back({name, value, source});
}

// ---- The coordinator's address

struct Address {
  std::string text;  // HOST:PORT
  bool any_port = false;
};

// HOST or HOST:PORT; IPv6 hosts in brackets.
absl::StatusOr<Address> ParseAddress(const std::string& text,
                                     const std::string& source) {
  const size_t colon = text.rfind(':');
  const bool has_port =
      colon != text.npos && text.find(']', colon) == text.npos;
  if (!has_port) return Address{absl::StrCat(text, ":", kDefaultPort), false};
  const size_t first = text.find(':');
  if (first != text.rfind(':') && text[0] != '[') {
    return Invalid(absl::StrCat(source, " is \"", text,
                                "\"; an IPv6 address goes into brackets: [",
                                text, "]:", kDefaultPort));
  }
  int port = 0;
  if (colon == 0 || !absl::SimpleAtoi(text.substr(colon + 1), &port) ||
      port < 0 || port > 65535) {
    return Invalid(absl::StrCat(source, " is \"", text,
                                "\"; expected HOST:PORT, as in n01:29400"));
  }
  return Address{text, port == 0};
}

// The one address that --coordinator and torchrun's spellings of it name.
absl::StatusOr<std::optional<NamedAddress>> FlaggedAddress(
    const TopologyFlags& flags) {
  std::vector<NamedAddress> given;
  if (flags.coordinator) given.push_back({*flags.coordinator, "--coordinator"});
  if (flags.rdzv_endpoint) {
    given.push_back({*flags.rdzv_endpoint, "--rdzv-endpoint"});
  }
  if (flags.master_addr || flags.master_port) {
    const int port = flags.master_port.value_or(kDefaultPort);
    given.push_back(
        {HostAndPort(flags.master_addr.value_or(kLoopback), absl::StrCat(port)),
         flags.master_addr ? "--master-addr" : "--master-port"});
  }
  if (given.empty()) return std::nullopt;
  for (const NamedAddress& other : given) {
    if (other.text == given[0].text) continue;
    return Invalid(absl::StrCat(given[0].source, " is ", given[0].text, " but ",
                                other.source, " is ", other.text,
                                "; they name the same thing: give one"));
  }
  return given[0];
}

absl::Status SetCoordinator(const std::string& text, const std::string& source,
                            Topology* topology) {
  ASSIGN_OR_RETURN(const Address address, ParseAddress(text, source));
  topology->coordinator = address.text;
  topology->port_named = !address.any_port;
  if (address.any_port && topology->has_peers()) {
    return Invalid(absl::StrCat(source, " is ", text,
                                ", but several launchers have to agree on a "
                                "port; name one"));
  }
  Note("coordinator", address.text, source, topology);
  return absl::OkStatus();
}

// The default of a single host.
absl::Status SetLocalCoordinator(Topology* topology) {
  RETURN_IF_ERROR(SetCoordinator(absl::StrCat(kLoopback, ":", kDefaultPort),
                                 "default", topology));
  topology->port_named = false;
  return absl::OkStatus();
}

// ---- The environment gave this process a rank

absl::StatusOr<Topology> FromGivenRank(const GivenRank& place,
                                       const TopologyFlags& flags) {
  if (flags.nproc_per_node) {
    return Invalid(absl::StrCat(
        "--nproc-per-node contradicts ", place.rank_source, "=", place.rank,
        ": ", place.set_name,
        " gave this process one rank, and it supervises that one learner; drop "
        "the flag, or ignore the environment with --standalone or --nnodes"));
  }
  Topology topology;
  topology.one_rank = true;
  topology.num_learners = 1;
  topology.first_rank = place.rank;
  topology.first_local_rank = place.local_rank;
  topology.local_world_size = place.local_world_size;
  topology.min_world_size = topology.max_world_size = place.world_size;
  topology.node_rank = place.node;
  topology.min_nodes = topology.max_nodes =
      std::max(place.node + 1, (place.world_size + place.local_world_size - 1) /
                                   place.local_world_size);
  topology.hosts_coordinator = place.rank == 0;
  Note("rank", absl::StrCat(place.rank, " of ", place.world_size),
       absl::StrCat(place.rank_source, ", ", place.world_source), &topology);
  Note("local rank",
       absl::StrCat(place.local_rank, " of ", place.local_world_size),
       place.local_source, &topology);
  ASSIGN_OR_RETURN(const auto flagged, FlaggedAddress(flags));
  if (flagged) {
    RETURN_IF_ERROR(SetCoordinator(flagged->text, flagged->source, &topology));
    return topology;
  }
  ASSIGN_OR_RETURN(const NamedAddress given, place.coordinator);
  RETURN_IF_ERROR(SetCoordinator(given.text, given.source, &topology));
  // Several launchers cannot agree on another port by themselves; one can take
  // any.
  topology.port_named = topology.has_peers();
  return topology;
}

// ---- Nodes: flags, a Kubernetes indexed Job, or one machine

absl::Status SetNodeCounts(const TopologyFlags& flags, Topology* topology) {
  const std::string text = flags.nnodes.value_or("1");
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  const bool good = parts.size() <= 2 &&
                    absl::SimpleAtoi(parts.front(), &topology->min_nodes) &&
                    absl::SimpleAtoi(parts.back(), &topology->max_nodes) &&
                    topology->min_nodes >= 1 &&
                    topology->max_nodes >= topology->min_nodes &&
                    topology->max_nodes <= kMostRanks;
  if (!good) {
    return Invalid(absl::StrCat("--nnodes is \"", text,
                                "\"; expected N or MIN:MAX, as in 2 or 2:4"));
  }
  Note("nodes", text, flags.nnodes ? "--nnodes" : "default", topology);
  return absl::OkStatus();
}

absl::Status SetLearners(const TopologyFlags& flags, int gpus,
                         Topology* topology) {
  const bool resumed = !flags.nproc_per_node && flags.resumed_learners;
  const std::string text = resumed ? absl::StrCat(*flags.resumed_learners)
                                   : flags.nproc_per_node.value_or("auto");
  std::string source = flags.nproc_per_node
                           ? absl::StrCat("--nproc-per-node ", text)
                       : resumed ? "as the run had"
                                 : "default";
  int count = 0;
  if (text == "auto") {
    count = std::max(1, gpus);
    source += absl::StrCat(": ", gpus, " GPUs");
  } else if (text == "gpu") {
    if (gpus == 0) {
      return Invalid(absl::StrCat("--nproc-per-node gpu wants GPUs, and ",
                                  kNoGpu,
                                  "; give a number, or auto (see `flotilla "
                                  "doctor`)"));
    }
    count = gpus;
  } else if (!absl::SimpleAtoi(text, &count) || count < 1 ||
             count > kMostRanks) {
    return Invalid(absl::StrCat("--nproc-per-node is \"", text,
                                "\"; expected a number above 0, auto or gpu"));
  }
  if (int64_t{count} * topology->max_nodes > kMostRanks) {
    return Invalid(absl::StrCat(topology->max_nodes, " nodes with ", count,
                                " learners each are more than ", kMostRanks,
                                " learners; give fewer with --nnodes or "
                                "--nproc-per-node"));
  }
  topology->num_learners = topology->local_world_size = count;
  Note("learners per node", absl::StrCat(count), source, topology);
  return absl::OkStatus();
}

// Which of several nodes this is.
absl::Status SetNodeRank(const TopologyFlags& flags, const Variables& variables,
                         Topology* topology) {
  std::string source = "default";
  if (flags.node_rank) {
    topology->node_rank = *flags.node_rank;
    source = "--node-rank";
  } else if (InSlurmStep(variables) && variables.Has("SLURM_NODEID")) {
    ASSIGN_OR_RETURN(topology->node_rank,
                     variables.Int("SLURM_NODEID", 0, kMostRanks));
    source = "SLURM_NODEID";
  } else if (variables.Has("JOB_COMPLETION_INDEX")) {
    ASSIGN_OR_RETURN(topology->node_rank,
                     variables.Int("JOB_COMPLETION_INDEX", 0, kMostRanks));
    source = "JOB_COMPLETION_INDEX";
  } else if (topology->max_nodes > 1) {
    return Invalid(absl::StrCat("--nnodes ", *flags.nnodes,
                                " needs --node-rank: which node this is, from "
                                "0 to ",
                                topology->max_nodes - 1));
  }
  if (topology->node_rank < 0 || topology->node_rank >= topology->max_nodes) {
    return Invalid(
        absl::StrCat(source, " is ", topology->node_rank, ", but there ",
                     topology->max_nodes == 1
                         ? "is 1 node"
                         : absl::StrCat("are ", topology->max_nodes, " nodes"),
                     flags.nnodes ? "" : "; give --nnodes"));
  }
  Note("node rank", absl::StrCat(topology->node_rank), source, topology);
  return absl::OkStatus();
}

absl::Status CheckStandalone(const TopologyFlags& flags) {
  std::vector<std::string> contradicting;
  if (flags.nnodes && *flags.nnodes != "1") contradicting.push_back("--nnodes");
  if (flags.node_rank && *flags.node_rank != 0) {
    contradicting.push_back("--node-rank");
  }
  if (flags.coordinator) contradicting.push_back("--coordinator");
  if (flags.rdzv_endpoint) contradicting.push_back("--rdzv-endpoint");
  if (flags.master_addr) contradicting.push_back("--master-addr");
  if (flags.master_port) contradicting.push_back("--master-port");
  if (contradicting.empty()) return absl::OkStatus();
  return Invalid(absl::StrCat(
      "--standalone means one node with a coordinator of its own; drop ",
      absl::StrJoin(contradicting, ", ")));
}

absl::StatusOr<Topology> FromNodes(const TopologyFlags& flags,
                                   const Variables& variables, int gpus) {
  Topology topology;
  RETURN_IF_ERROR(SetNodeCounts(flags, &topology));
  const bool under_slurm =
      !flags.standalone && topology.max_nodes > 1 && InSlurmStep(variables);
  NamedAddress slurm;
  if (under_slurm) {
    ASSIGN_OR_RETURN(slurm, SlurmMeetingPoint(variables));
  }
  if (flags.standalone) {
    Note("node rank", "0", "--standalone", &topology);
  } else {
    RETURN_IF_ERROR(SetNodeRank(flags, variables, &topology));
  }
  RETURN_IF_ERROR(SetLearners(flags, gpus, &topology));
  topology.first_rank = topology.node_rank * topology.num_learners;
  topology.min_world_size = topology.min_nodes * topology.num_learners;
  topology.max_world_size = topology.max_nodes * topology.num_learners;
  topology.hosts_coordinator = topology.node_rank == 0;

  ASSIGN_OR_RETURN(const auto flagged, FlaggedAddress(flags));
  if (flagged) {
    RETURN_IF_ERROR(SetCoordinator(flagged->text, flagged->source, &topology));
  } else if (flags.standalone) {
    topology.coordinator = absl::StrCat(kLoopback, ":0");
    Note("coordinator", "its own, on a free port", "--standalone", &topology);
  } else if (topology.max_nodes == 1) {
    RETURN_IF_ERROR(SetLocalCoordinator(&topology));
  } else if (under_slurm) {
    RETURN_IF_ERROR(SetCoordinator(slurm.text, slurm.source, &topology));
  } else {
    return Invalid(absl::StrCat("--nnodes ", *flags.nnodes,
                                " needs --coordinator HOST:PORT, where the "
                                "nodes meet: the host of node 0"));
  }
  return topology;
}

}  // namespace

absl::StatusOr<Topology> DetectTopology(const TopologyFlags& flags,
                                        const Environment& environment,
                                        int gpus) {
  const Variables variables(environment);
  if (flags.standalone) {
    RETURN_IF_ERROR(CheckStandalone(flags));
    return FromNodes(flags, variables, gpus);
  }
  if (flags.nnodes || flags.node_rank) return FromNodes(flags, variables, gpus);
  ASSIGN_OR_RETURN(const std::optional<GivenRank> place,
                   FindGivenRank(variables));
  if (place) return FromGivenRank(*place, flags);
  if (variables.Has("JOB_COMPLETION_INDEX")) {
    return Invalid(
        "JOB_COMPLETION_INDEX tells which pod this is, but not how many there "
        "are: give --nnodes (the Job's completions) and --coordinator "
        "HOST:PORT "
        "(pod 0), or --standalone if every pod trains alone");
  }
  return FromNodes(flags, variables, gpus);
}

Environment CurrentEnvironment() {
  Environment result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals != nullptr) {
      result[std::string(*entry, static_cast<size_t>(equals - *entry))] =
          equals + 1;
    }
  }
  return result;
}

}  // namespace flotilla
