// launcher/topology.h: any flags and any environment.

#include "launcher/topology.h"

#include <glog/logging.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/fuzz/input.h"

namespace flotilla {
namespace {

const std::vector<std::string>& Variables() {
  static const auto& names = *new std::vector<std::string>{
      "RANK",
      "LOCAL_RANK",
      "WORLD_SIZE",
      "LOCAL_WORLD_SIZE",
      "GROUP_RANK",
      "MASTER_ADDR",
      "MASTER_PORT",
      "TORCHELASTIC_USE_AGENT_STORE",
      "SLURM_STEP_ID",
      "SLURM_JOB_ID",
      "SLURM_PROCID",
      "SLURM_LOCALID",
      "SLURM_NODEID",
      "SLURM_NTASKS",
      "SLURM_STEP_NUM_TASKS",
      "SLURM_NNODES",
      "SLURM_STEP_NUM_NODES",
      "SLURM_JOB_NODELIST",
      "SLURM_STEP_NODELIST",
      "SLURM_TASKS_PER_NODE",
      "SLURM_STEP_TASKS_PER_NODE",
      "SLURM_PTY_PORT",
      "OMPI_COMM_WORLD_RANK",
      "OMPI_COMM_WORLD_SIZE",
      "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE",
      "JOB_COMPLETION_INDEX",
  };
  return names;
}

const std::vector<std::string>& Values() {
  static const auto& values = *new std::vector<std::string>{
      "0",   "1",    "2",       "3",           "8",
      "2:4", "auto", "gpu",     "n[01-02]",    "2(x2)",
      "n01", "True", "n01:0",   "n01:29401",   "2147483647",
      "-1",  "",     "2(x3),1", "[::1]:29400", "4294967295",
  };
  return values;
}

std::optional<std::string> MaybeText(Input* in) {
  if (in->Below(3) > 0) return std::nullopt;
  return in->Name(Values());
}

std::optional<int> MaybeNumber(Input* in) {
  if (in->Below(3) > 0) return std::nullopt;
  return static_cast<int>(in->Integer());
}

void Check(const Topology& topology) {
  CHECK_GE(topology.num_learners, 1);
  CHECK_GE(topology.min_nodes, 1);
  CHECK_GE(topology.max_nodes, topology.min_nodes);
  CHECK_GE(topology.min_world_size, 1);
  CHECK_GE(topology.max_world_size, topology.min_world_size);
  CHECK_GE(topology.node_rank, 0);
  CHECK_LT(topology.node_rank, topology.max_nodes);
  CHECK_GE(topology.first_rank, 0);
  CHECK_LE(topology.first_rank + topology.num_learners,
           topology.max_world_size);
  CHECK_GE(topology.first_local_rank, 0);
  CHECK_LE(topology.first_local_rank + topology.num_learners,
           topology.local_world_size);
  CHECK_LE(topology.local_world_size, topology.max_world_size);
  CHECK_NE(topology.coordinator.find(':'), std::string::npos);
}

}  // namespace
}  // namespace flotilla

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flotilla;
  Input in(data, size);
  TopologyFlags flags;
  flags.nproc_per_node = MaybeText(&in);
  flags.nnodes = MaybeText(&in);
  flags.node_rank = MaybeNumber(&in);
  flags.coordinator = MaybeText(&in);
  flags.master_addr = MaybeText(&in);
  flags.master_port = MaybeNumber(&in);
  flags.rdzv_endpoint = MaybeText(&in);
  flags.standalone = in.Below(3) == 1;
  const int gpus = in.Below(9);
  Environment environment;
  while (!in.empty()) {
    const std::string name = in.Name(Variables());
    environment[name] = in.Name(Values());
  }
  const auto topology = DetectTopology(flags, environment, gpus);
  if (topology.ok()) {
    Check(*topology);
  } else {
    CHECK(absl::IsInvalidArgument(topology.status())) << topology.status();
    CHECK(!topology.status().message().empty());
  }
  return 0;
}
