#include "launcher/core_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "google/protobuf/text_format.h"
#include "services/base/config.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

v1::RunConfig Parse(const std::string& text) {
  v1::RunConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

Topology Learners(int count) {
  Topology topology;
  topology.num_learners = topology.local_world_size = count;
  topology.min_world_size = topology.max_world_size = count;
  return topology;
}

// On a host, or in a container, that has no other cores.
CorePlan Plan(const std::string& config, const Topology& topology,
              const std::vector<int>& usable,
              const std::vector<std::string>& devices = {"cpu"}) {
  return PlanCores(Parse(config), topology, devices, usable,
                   static_cast<int>(usable.size()))
      .value();
}

TEST(CorePlanTest, EachLearnerSharesCoresWithItsWorkersWhereTheyOutnumberThem) {
  EXPECT_THAT(Plan("", Learners(2), {0, 1}).cores,
              ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(
      Plan("env { num_workers: 3 }", Learners(2), {0, 1, 2, 3, 4}).cores,
      ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3, 4)));
  const CorePlan one = Plan("env { num_workers: 2 }", Learners(1), {0, 1});
  EXPECT_THAT(one.cores, ElementsAre(ElementsAre(0, 1)));
  EXPECT_EQ(one.why, "3 processes outnumber 2 cores");
}

TEST(CorePlanTest, OnlyWhatIsLeftToThisProcessIsSharedOut) {
  EXPECT_THAT(Plan("", Learners(2), {3, 7}).cores,
              ElementsAre(ElementsAre(3), ElementsAre(7)));
  EXPECT_EQ(Plan("", Learners(1), {3, 7}).why, "enough for all 2 processes");
  EXPECT_THAT(Plan("", Learners(1), {7}).cores, ElementsAre(ElementsAre(7)));
}

TEST(CorePlanTest, TheKernelIsLeftToItWhereCoresAreManyOrFew) {
  EXPECT_FALSE(Plan("", Learners(2), {0, 1, 2, 3}).pinned());
  const CorePlan few = Plan("", Learners(3), {0, 1});
  EXPECT_FALSE(few.pinned());
  EXPECT_EQ(few.why, "3 learners outnumber 2 cores");
  // Workers that run elsewhere take no core.
  EXPECT_FALSE(
      Plan("env { server: \"unix:/tmp/s\" }", Learners(2), {0, 1}).pinned());
  EXPECT_FALSE(Plan("env { remote_workers: 1 }", Learners(2), {0, 1}).pinned());
  EXPECT_FALSE(Plan("", Learners(2), {0, 1}, {"cuda:0", "cuda:1"}).pinned());
}

TEST(CorePlanTest, WhoMayShareTheHostWithOthersDoesNotGuess) {
  Topology node = Learners(2);
  node.max_world_size = 4;  // of nodes that may be this host too
  EXPECT_FALSE(Plan("", node, {0, 1}).pinned());
  Topology rank = Learners(1);
  rank.one_rank = true;
  rank.local_world_size = rank.max_world_size = 2;
  rank.first_local_rank = rank.first_rank = 1;
  EXPECT_FALSE(Plan("", rank, {0, 1}).pinned());
  // Unless it is told to.
  const CorePlan told = Plan("runtime { placement: PINNED }", rank, {0, 1});
  EXPECT_THAT(told.cores, ElementsAre(ElementsAre(1)));
  EXPECT_EQ(DescribeCores(told, rank),
            "  cores              rank 1 on 1               "
            "(runtime.placement is PINNED)\n");
}

// As srun --cpu-bind=cores and mpirun leave them.
TEST(CorePlanTest, ARankThatWasBoundKeepsItsCores) {
  Topology rank = Learners(1);
  rank.one_rank = true;
  rank.local_world_size = rank.max_world_size = 2;
  rank.first_local_rank = rank.first_rank = 1;
  const v1::RunConfig pinned = Parse("runtime { placement: PINNED }");
  const auto plan = [&](const std::vector<int>& usable, int around) {
    return PlanCores(pinned, rank, {"cpu"}, usable, around).value();
  };
  EXPECT_THAT(plan({4, 5, 6, 7}, 8).cores,
              ElementsAre(ElementsAre(4, 5, 6, 7)));
  EXPECT_EQ(plan({4, 5, 6, 7}, 8).why,
            "runtime.placement is PINNED, and these are its own");
  // More than a part: both ranks have them, and share them out.
  EXPECT_THAT(plan({0, 1, 2, 3}, 4).cores, ElementsAre(ElementsAre(2, 3)));
  EXPECT_THAT(plan({0, 1, 2, 3}, 7).cores, ElementsAre(ElementsAre(2, 3)));
  EXPECT_THAT(plan({0, 1, 2, 3}, 0).cores, ElementsAre(ElementsAre(2, 3)));
  // Too few for all: they cannot be everybody's.
  rank.local_world_size = rank.max_world_size = 8;
  EXPECT_THAT(plan({4, 5}, 2).cores, ElementsAre(ElementsAre(4, 5)));
  // Without being told to, nobody guesses.
  EXPECT_FALSE(PlanCores(Parse(""), rank, {"cpu"}, {4, 5}, 16)->pinned());
}

TEST(CoresAroundTest, AreTheHostsOrThoseOfTheNearestCgroupThatHasFewer) {
  const TempDir root;
  const auto write = [&](const std::string& path, const std::string& text) {
    const std::filesystem::path file = root.path() + path;
    std::filesystem::create_directories(file.parent_path());
    WriteFile(file, text);
  };
  const auto around = [&] { return CoresAround(root.path()); };
  EXPECT_EQ(around(), 0);
  write("/sys/devices/system/cpu/online", "0-15,32-47\n");
  EXPECT_EQ(around(), 32);
  write("/proc/self/cgroup", "0::/job_7/step_0\n");
  write("/sys/fs/cgroup/cpuset.cpus.effective", "0-15,32-47\n");
  write("/sys/fs/cgroup/job_7/cpuset.cpus.effective", "0-3,8\n");
  write("/sys/fs/cgroup/job_7/step_0/cpuset.cpus.effective", "\n");
  EXPECT_EQ(around(), 5);
  write("/proc/self/cgroup", "3:cpuset:/job_7\n");
  write("/sys/fs/cgroup/cpuset/job_7/cpuset.cpus", "2\n");
  EXPECT_EQ(around(), 1);
  for (const char* nonsense : {"many", "3-1", "-1", "1-x"}) {
    write("/sys/fs/cgroup/cpuset/job_7/cpuset.cpus", nonsense);
    EXPECT_EQ(around(), 32) << nonsense;
  }
}

TEST(CorePlanTest, TheConfigurationDecides) {
  EXPECT_THAT(
      Plan("runtime { placement: PINNED }", Learners(2), {0, 1, 2, 4}).cores,
      ElementsAre(ElementsAre(0, 1), ElementsAre(2, 4)));
  const CorePlan free =
      Plan("runtime { placement: FREE }", Learners(2), {0, 1});
  EXPECT_FALSE(free.pinned());
  EXPECT_EQ(DescribeCores(free, Learners(2)),
            "  cores              free                      "
            "(runtime.placement is FREE)\n");
  EXPECT_THAT(PlanCores(Parse("runtime { placement: PINNED }"), Learners(3),
                        {"cpu"}, {0, 1}, /*around=*/8),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("3 learners are more than the 2 cores")));
}

TEST(CorePlanTest, CoresAreWrittenAsTasksetHasThem) {
  EXPECT_EQ(CoreList({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

}  // namespace
}  // namespace flotilla
