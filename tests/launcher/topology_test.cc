#include "launcher/topology.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace flotilla {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Environment kTorchrun = {
    {"RANK", "5"},          {"LOCAL_RANK", "1"},
    {"WORLD_SIZE", "8"},    {"LOCAL_WORLD_SIZE", "4"},
    {"GROUP_RANK", "1"},    {"MASTER_ADDR", "n01"},
    {"MASTER_PORT", "1234"}};

const Environment kSlurm = {{"SLURM_JOB_ID", "77"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_PROCID", "3"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_NODEID", "1"},
                            {"SLURM_NTASKS", "4"},
                            {"SLURM_STEP_NUM_TASKS", "4"},
                            {"SLURM_NNODES", "2"},
                            {"SLURM_STEP_NUM_NODES", "2"},
                            {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                            {"SLURM_STEP_NODELIST", "gpu[07-08]"}};

const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};

Environment Without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

Environment With(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

// "here of world @coordinator ..." of a topology, or the error.
std::string Brief(const TopologyFlags& flags, const Environment& environment,
                  int gpus = 0) {
  const auto t = DetectTopology(flags, environment, gpus);
  if (!t.ok()) return std::string(t.status().message());
  return absl::StrCat(
      "rank ", t->first_rank, "+", t->num_learners, " of ", t->min_world_size,
      t->elastic() ? absl::StrCat(":", t->max_world_size) : "", ", local ",
      t->first_local_rank, " of ", t->local_world_size, ", node ", t->node_rank,
      ", at ", t->coordinator, t->port_named ? "" : "?",
      t->hosts_coordinator ? ", hosts" : "");
}

TEST(TopologyTest, NothingGivenIsOneLearnerOnOneMachine) {
  EXPECT_EQ(Brief({}, {}),
            "rank 0+1 of 1, local 0 of 1, node 0, at 127.0.0.1:29400?, hosts");
}

TEST(TopologyTest, AutoIsOneLearnerPerGpu) {
  EXPECT_EQ(Brief({}, {}, 4),
            "rank 0+4 of 4, local 0 of 4, node 0, at 127.0.0.1:29400?, hosts");
  EXPECT_THAT(Brief({.nproc_per_node = "auto"}, {}, 0), HasSubstr("0+1 of 1"));
  EXPECT_THAT(Brief({.nproc_per_node = "gpu"}, {}, 2), HasSubstr("0+2 of 2"));
  EXPECT_THAT(Brief({.nproc_per_node = "3"}, {}, 8), HasSubstr("0+3 of 3"));
}

TEST(TopologyTest, GpuWithoutOneIsAnError) {
  EXPECT_THAT(Brief({.nproc_per_node = "gpu"}, {}),
              HasSubstr("there is none to use"));
}

TEST(TopologyTest, StandaloneHasAPortOfItsOwnAndIgnoresTheEnvironment) {
  EXPECT_EQ(Brief({.nproc_per_node = "2", .standalone = true}, kTorchrun),
            "rank 0+2 of 2, local 0 of 2, node 0, at 127.0.0.1:0?, hosts");
  EXPECT_EQ(Brief({.standalone = true}, {{"RANK", "1"}}),
            "rank 0+1 of 1, local 0 of 1, node 0, at 127.0.0.1:0?, hosts");
}

TEST(TopologyTest, StandaloneContradictsNodesAndAddresses) {
  EXPECT_THAT(
      Brief({.nnodes = "2", .coordinator = "n01", .standalone = true}, {}),
      AllOf(HasSubstr("drop --nnodes, --coordinator")));
}

TEST(TopologyTest, NodesTakeConsecutiveRanks) {
  EXPECT_EQ(Brief({.nproc_per_node = "4",
                   .nnodes = "2",
                   .node_rank = 1,
                   .coordinator = "n01:5000"},
                  {}),
            "rank 4+4 of 8, local 0 of 4, node 1, at n01:5000");
  EXPECT_EQ(Brief({.nnodes = "2", .node_rank = 0, .coordinator = "n01"}, {}),
            "rank 0+1 of 2, local 0 of 1, node 0, at n01:29400, hosts");
}

TEST(TopologyTest, ARangeOfNodesIsElastic) {
  EXPECT_EQ(Brief({.nproc_per_node = "2",
                   .nnodes = "1:4",
                   .node_rank = 2,
                   .coordinator = "n01"},
                  {}),
            "rank 4+2 of 2:8, local 0 of 2, node 2, at n01:29400");
}

TEST(TopologyTest, TorchrunSpellingsNameTheCoordinator) {
  EXPECT_THAT(Brief({.nnodes = "2",
                     .node_rank = 0,
                     .master_addr = "n01",
                     .master_port = 99},
                    {}),
              HasSubstr("at n01:99, hosts"));
  EXPECT_THAT(
      Brief({.nnodes = "2", .node_rank = 0, .rdzv_endpoint = "n01:99"}, {}),
      HasSubstr("at n01:99, hosts"));
  EXPECT_THAT(Brief({.master_port = 99}, {}), HasSubstr("at 127.0.0.1:99, h"));
  EXPECT_THAT(Brief({.rdzv_endpoint = "localhost:0"}, {}),
              HasSubstr("at localhost:0?, hosts"));
  EXPECT_THAT(Brief({.coordinator = "[::1]:99"}, {}), HasSubstr("at [::1]:99"));
  EXPECT_THAT(Brief({.coordinator = "[::1]"}, {}), HasSubstr("[::1]:29400"));
  EXPECT_THAT(
      Brief({.nnodes = "2", .node_rank = 0, .master_addr = "fd00::1"}, {}),
      HasSubstr("at [fd00::1]:29400, hosts"));
  EXPECT_THAT(
      Brief({.nnodes = "2", .node_rank = 0, .master_addr = "[fd00::1]"}, {}),
      HasSubstr("at [fd00::1]:29400, hosts"));
  EXPECT_THAT(Brief({.coordinator = "fd00::1"}, {}),
              HasSubstr("--coordinator is \"fd00::1\"; an IPv6 address goes "
                        "into brackets: [fd00::1]:29400"));
  EXPECT_THAT(Brief({}, {{"RANK", "1"},
                         {"WORLD_SIZE", "2"},
                         {"LOCAL_RANK", "0"},
                         {"LOCAL_WORLD_SIZE", "1"},
                         {"MASTER_ADDR", "fd00::1"},
                         {"MASTER_PORT", "9400"}}),
              HasSubstr("at [fd00::1]:9400"));
}

TEST(TopologyTest, TwoAddressesThatDifferAreAnError) {
  EXPECT_THAT(Brief({.coordinator = "a:1", .rdzv_endpoint = "b:1"}, {}),
              AllOf(HasSubstr("--coordinator is a:1"),
                    HasSubstr("--rdzv-endpoint is b:1")));
  EXPECT_THAT(Brief({.coordinator = "a:1", .rdzv_endpoint = "a:1"}, {}),
              HasSubstr("at a:1, hosts"));
}

TEST(TopologyTest, NonsenseIsNamed) {
  EXPECT_THAT(Brief({.nproc_per_node = "0"}, {}), HasSubstr("above 0"));
  EXPECT_THAT(Brief({.nproc_per_node = "two"}, {}), HasSubstr("\"two\""));
  EXPECT_THAT(Brief({.nnodes = "2:1"}, {}), HasSubstr("MIN:MAX"));
  EXPECT_THAT(Brief({.nnodes = "0"}, {}), HasSubstr("--nnodes is \"0\""));
  EXPECT_THAT(Brief({.nnodes = "1:2:3"}, {}), HasSubstr("MIN:MAX"));
  EXPECT_THAT(Brief({.coordinator = "n01:x"}, {}), HasSubstr("HOST:PORT"));
  EXPECT_THAT(Brief({.coordinator = ":5"}, {}), HasSubstr("HOST:PORT"));
  EXPECT_THAT(Brief({.coordinator = "n01:70000"}, {}), HasSubstr("HOST:PORT"));
  EXPECT_THAT(Brief({.node_rank = 1}, {}), HasSubstr("give --nnodes"));
  EXPECT_THAT(Brief({.node_rank = -1}, {}), HasSubstr("--node-rank is -1"));
  EXPECT_THAT(Brief({.nnodes = "2000000000"}, {}), HasSubstr("MIN:MAX"));
  EXPECT_THAT(Brief({.nproc_per_node = "1000000",
                     .nnodes = "1000000",
                     .node_rank = 0,
                     .coordinator = "a"},
                    {}),
              HasSubstr("more than 1048576 learners"));
  EXPECT_THAT(Brief({.nnodes = "2", .node_rank = 2, .coordinator = "a"}, {}),
              HasSubstr("--node-rank is 2, but there are 2 nodes"));
  EXPECT_THAT(Brief({.nnodes = "2", .node_rank = 0, .coordinator = "a:0"}, {}),
              HasSubstr("agree on a port"));
}

TEST(TopologyTest, SeveralNodesNeedARankAndAnAddress) {
  EXPECT_THAT(Brief({.nnodes = "2", .coordinator = "a"}, {}),
              HasSubstr("--node-rank"));
  EXPECT_THAT(Brief({.nnodes = "2", .node_rank = 0}, {}),
              HasSubstr("--coordinator HOST:PORT"));
}

TEST(TopologyTest, TorchrunGivesOneRank) {
  EXPECT_EQ(Brief({}, kTorchrun),
            "rank 5+1 of 8, local 1 of 4, node 1, at n01:1234");
  EXPECT_EQ(Brief({}, With(kTorchrun, {{"RANK", "0"},
                                       {"LOCAL_RANK", "0"},
                                       {"GROUP_RANK", "0"}})),
            "rank 0+1 of 8, local 0 of 4, node 0, at n01:1234, hosts");
}

TEST(TopologyTest, TorchrunsOwnStoreIsNotOurCoordinator) {
  EXPECT_THAT(
      Brief({}, With(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})),
      HasSubstr("at n01:1235"));
}

TEST(TopologyTest, OneNodeMeetsOnLoopbackWhateverItIsCalled) {
  const Environment one_node = {
      {"RANK", "1"},          {"LOCAL_RANK", "1"},
      {"WORLD_SIZE", "2"},    {"LOCAL_WORLD_SIZE", "2"},
      {"MASTER_ADDR", "n01"}, {"MASTER_PORT", "1234"}};
  EXPECT_EQ(Brief({}, one_node),
            "rank 1+1 of 2, local 1 of 2, node 0, at 127.0.0.1:1234");
  EXPECT_THAT(Brief({}, Without(one_node, "LOCAL_WORLD_SIZE")),
              HasSubstr("local 1 of 2, node 0, at 127.0.0.1:1234"));
}

TEST(TopologyTest, AWorldOfOneMayTakeAnyPort) {
  EXPECT_THAT(
      Brief({}, {{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"WORLD_SIZE", "1"}}),
      HasSubstr("0+1 of 1, local 0 of 1, node 0, at 127.0.0.1:29400?, hosts"));
}

TEST(TopologyTest, APartialSetNamesWhatIsMissing) {
  EXPECT_THAT(Brief({}, {{"RANK", "0"}}),
              AllOf(HasSubstr("it has RANK but not LOCAL_RANK, WORLD_SIZE"),
                    HasSubstr("--standalone")));
  EXPECT_THAT(Brief({}, Without(kTorchrun, "MASTER_ADDR")),
              HasSubstr("not MASTER_ADDR"));
  EXPECT_THAT(Brief({}, Without(kTorchrun, "LOCAL_WORLD_SIZE")),
              HasSubstr("LOCAL_WORLD_SIZE is missing"));
  EXPECT_THAT(Brief({}, Without(kSlurm, "SLURM_LOCALID")),
              HasSubstr("but not SLURM_LOCALID"));
  EXPECT_THAT(Brief({}, Without(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE")),
              HasSubstr("but not OMPI_COMM_WORLD_LOCAL_SIZE"));
}

TEST(TopologyTest, ASetThatContradictsItselfIsAnError) {
  EXPECT_THAT(Brief({}, With(kTorchrun, {{"RANK", "8"}})),
              HasSubstr("rank 8 of 8"));
  EXPECT_THAT(Brief({}, With(kTorchrun, {{"LOCAL_RANK", "4"}})),
              HasSubstr("local rank 4 of 4"));
  EXPECT_THAT(Brief({}, With(kTorchrun, {{"RANK", "x"}})),
              HasSubstr("RANK is \"x\""));
}

TEST(TopologyTest, LearnersPerNodeContradictAGivenRank) {
  EXPECT_THAT(Brief({.nproc_per_node = "2"}, kTorchrun),
              AllOf(HasSubstr("--nproc-per-node contradicts RANK=5"),
                    HasSubstr("--standalone")));
  EXPECT_THAT(Brief({.nproc_per_node = "auto"}, kSlurm),
              HasSubstr("contradicts SLURM_PROCID=3"));
}

TEST(TopologyTest, AFlagOverridesTheEnvironmentsAddress) {
  EXPECT_THAT(Brief({.coordinator = "elsewhere:1"}, kTorchrun),
              HasSubstr("rank 5+1 of 8, local 1 of 4, node 1, at elsewhere:1"));
}

TEST(TopologyTest, SlurmGivesOneRankAndTheFirstHostsName) {
  EXPECT_EQ(Brief({}, kSlurm),
            "rank 3+1 of 4, local 1 of 2, node 1, at gpu07:29477");
}

TEST(TopologyTest, SlurmTasksPerNodeMayDiffer) {
  EXPECT_THAT(Brief({}, With(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "1,3"}})),
              HasSubstr("local 1 of 3"));
  EXPECT_THAT(Brief({}, With(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2"}})),
              HasSubstr("says nothing of node 1"));
  for (const char* nonsense : {"0,3", "-1,3", "2(x0),3", "2(x-1),3",
                               "1(x9999999999),3", "9999999999,3"}) {
    EXPECT_THAT(
        Brief({}, With(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", nonsense}})),
        HasSubstr("says nothing of node 1"));
  }
  EXPECT_THAT(Brief({}, Without(kSlurm, "SLURM_STEP_TASKS_PER_NODE")),
              HasSubstr("local 1 of 2"));
}

TEST(TopologyTest, SlurmOnOneNodeMeetsOnLoopback) {
  EXPECT_EQ(Brief({}, With(kSlurm, {{"SLURM_STEP_NUM_NODES", "1"},
                                    {"SLURM_STEP_NODELIST", "gpu07"},
                                    {"SLURM_STEP_TASKS_PER_NODE", "4"},
                                    {"SLURM_NODEID", "0"},
                                    {"SLURM_LOCALID", "3"}})),
            "rank 3+1 of 4, local 3 of 4, node 0, at 127.0.0.1:29477");
}

TEST(TopologyTest, SlurmOutsideAStepIsIgnored) {
  const std::string alone =
      "rank 0+1 of 1, local 0 of 1, node 0, at 127.0.0.1:29400?, hosts";
  EXPECT_EQ(Brief({}, Without(kSlurm, "SLURM_STEP_ID")), alone);
  EXPECT_EQ(Brief({}, With(kSlurm, {{"SLURM_STEP_ID", "4294967291"}})), alone);
  EXPECT_EQ(Brief({}, With(kSlurm, {{"SLURM_PTY_PORT", "4242"}})), alone);
}

TEST(TopologyTest, NodesUnderSlurmTakeTheirRankFromIt) {
  const Environment one_task_a_node =
      With(kSlurm, {{"SLURM_STEP_NUM_TASKS", "2"}});
  EXPECT_EQ(Brief({.nproc_per_node = "4", .nnodes = "2"}, one_task_a_node),
            "rank 4+4 of 8, local 0 of 4, node 1, at gpu07:29477");
  EXPECT_THAT(Brief({.nproc_per_node = "4", .nnodes = "2"}, kSlurm),
              HasSubstr("--ntasks-per-node=1"));
}

TEST(TopologyTest, TorchrunComesBeforeSlurm) {
  EXPECT_THAT(Brief({}, With(kSlurm, kTorchrun)), HasSubstr("rank 5+1 of 8"));
}

TEST(TopologyTest, OpenMpiGivesOneRank) {
  EXPECT_EQ(Brief({}, kOpenMpi),
            "rank 1+1 of 2, local 1 of 2, node 0, at 127.0.0.1:29400");
}

TEST(TopologyTest, OpenMpiOnSeveralNodesNeedsAnAddress) {
  const Environment spread = With(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_THAT(Brief({}, spread), HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(Brief({}, With(spread, {{"MASTER_ADDR", "n01"}})),
              HasSubstr("rank 1+1 of 4, local 1 of 2, node 0, at n01:29400"));
}

// Two learners of one name would take turns in one seat.
TEST(TopologyTest, RanksAreToldApartHoweverHostsShareThemOut) {
  struct Place {
    int local_rank, local_size;
  };
  const std::vector<Place> layouts[] = {
      {{0, 1}, {0, 3}, {1, 3}, {2, 3}},   // mpirun -np 4 -host a:1,b:3
      {{0, 2}, {0, 2}, {1, 2}, {1, 2}},   // -host a:2,b:2 --map-by node
      {{0, 3}, {1, 3}, {2, 3}, {0, 1}}};  // -host a:3,b:1
  for (const std::vector<Place>& layout : layouts) {
    for (const bool open_mpi : {true, false}) {
      const std::string at = open_mpi ? "OMPI_COMM_WORLD_" : "";
      std::set<std::pair<int, int>> seats;
      for (size_t rank = 0; rank < layout.size(); ++rank) {
        const auto t = DetectTopology(
            {},
            {{at + "RANK", absl::StrCat(rank)},
             {at + (open_mpi ? "SIZE" : "WORLD_SIZE"),
              absl::StrCat(layout.size())},
             {at + "LOCAL_RANK", absl::StrCat(layout[rank].local_rank)},
             {at + (open_mpi ? "LOCAL_SIZE" : "LOCAL_WORLD_SIZE"),
              absl::StrCat(layout[rank].local_size)},
             {"MASTER_ADDR", "n01"}},
            0);
        ASSERT_TRUE(t.ok()) << t.status();
        EXPECT_EQ(t->first_rank, static_cast<int>(rank));
        EXPECT_EQ(t->hosts_coordinator, rank == 0);
        EXPECT_LT(t->node_rank, t->max_nodes);
        seats.insert({t->node_rank, t->first_local_rank});
      }
      EXPECT_EQ(seats.size(), layout.size()) << at;
    }
  }
}

TEST(TopologyTest, AnIndexedJobGivesTheNodesRank) {
  const Environment pod = {{"JOB_COMPLETION_INDEX", "1"}};
  EXPECT_EQ(
      Brief({.nproc_per_node = "2", .nnodes = "3", .coordinator = "p0"}, pod),
      "rank 2+2 of 6, local 0 of 2, node 1, at p0:29400");
  EXPECT_THAT(Brief({}, pod),
              AllOf(HasSubstr("--nnodes"), HasSubstr("--coordinator")));
}

TEST(TopologyTest, EveryValueHasItsSource) {
  const auto topology = DetectTopology({}, kSlurm, 0);
  ASSERT_TRUE(topology.ok()) << topology.status();
  std::string text;
  for (const auto& source : topology->sources) {
    absl::StrAppend(&text, source.name, "=", source.value, " <", source.source,
                    ">\n");
  }
  EXPECT_EQ(text,
            "rank=3 of 4 <SLURM_PROCID, SLURM_STEP_NUM_TASKS>\n"
            "local rank=1 of 2 <SLURM_LOCALID>\n"
            "coordinator=gpu07:29477 <the first host of SLURM_STEP_NODELIST, "
            "port by SLURM_JOB_ID>\n");
}

}  // namespace
}  // namespace flotilla
