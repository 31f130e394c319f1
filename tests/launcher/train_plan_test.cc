#include "launcher/train_plan.h"

#include <google/protobuf/text_format.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/config.h"

namespace flotilla {
namespace {

using ::testing::HasSubstr;

v1::RunConfig Parse(const std::string& text) {
  v1::RunConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return Resolved(config);
}

Topology TwoLearners() {
  return DetectTopology({.nproc_per_node = "2"}, {}, 0).value();
}

TEST(TrainPlanTest, SizesFollowFromConfigurationAndWorld) {
  const TrainPlan plan =
      MakePlan(Parse("ppo {} env { num_workers: 2 }"), TwoLearners());
  EXPECT_EQ(plan.world_size, 2);
  EXPECT_EQ(plan.batch, 512);
  EXPECT_EQ(plan.minibatch, 128);
  EXPECT_EQ(plan.gradient_steps, 16);
  EXPECT_EQ(plan.updates, 489);  // 500000 / 1024, the last one partly beyond
  EXPECT_EQ(plan.envs_per_worker, 2);
}

// The example of CleanRL's documentation, whose 9765 leave out the part of a
// batch that we play to the end.
TEST(TrainPlanTest, CleanRlsMultiGpuExample) {
  const v1::RunConfig config =
      Parse("ppo {} env { num_envs: 4 } total_env_steps: 10000000");
  const TrainPlan plan = MakePlan(config, TwoLearners());
  EXPECT_EQ(plan.num_envs * plan.world_size, 8);
  EXPECT_EQ(plan.batch, 512);
  EXPECT_EQ(plan.batch * plan.world_size, 1024);
  EXPECT_EQ(plan.minibatch, 128);
  EXPECT_EQ(plan.minibatch * plan.world_size, 256);
  EXPECT_EQ(plan.updates, 9766);
  EXPECT_THAT(DescribePlan(config, TwoLearners(), 0),
              HasSubstr("9,765 and one that passes them"));
}

TEST(TrainPlanTest, DqnAndImpalaHaveTheirOwn) {
  const TrainPlan dqn = MakePlan(Parse("dqn {}"), TwoLearners());
  EXPECT_EQ(dqn.minibatch, 32);
  EXPECT_EQ(dqn.gradient_steps, 10);
  const TrainPlan impala =
      MakePlan(Parse("impala { minibatches: 2 }"), TwoLearners());
  EXPECT_EQ(impala.minibatch, 256);
  EXPECT_EQ(impala.gradient_steps, 2);
}

TEST(TrainPlanTest, TheDescriptionIsWhatADryRunPrints) {
  EXPECT_EQ(DescribePlan(Parse("ppo {}"), TwoLearners(), 0),
            R"(topology
  nodes              1                         (default)
  node rank          0                         (default)
  learners per node  2                         (--nproc-per-node 2)
  coordinator        127.0.0.1:29400           (default)
  ranks here         0-1 of 2
  device             auto: the CPU

  sizes              a learner    global
  environments       4            8
  batch              512          1,024        rollout.length * env.num_envs
  minibatch          128          256
  gradient steps     16                        an update
  updates                         489          for 500,000 steps: 488 and one that passes them

  env workers        1            2            4 environments each, in 2 groups of 2
)");
}

TEST(TrainPlanTest, RolloutsCollectedAheadAreNamed) {
  const auto plan = [](const std::string& text) {
    return DescribePlan(Parse(text), TwoLearners(), 0);
  };
  EXPECT_THAT(plan("impala {}"),
              HasSubstr("rollouts           free running              4 "
                        "waiting, dropped beyond a lag of 8 updates\n"));
  EXPECT_THAT(plan("ppo {} rollout { overlap_one_update: true }"),
              HasSubstr("rollouts           one ahead "));
  EXPECT_THAT(plan("ppo {}"), testing::Not(HasSubstr("rollouts ")));
}

class CheckDevicesTest : public testing::Test {
 protected:
  std::string Check(const std::string& more, int gpus) {
    return std::string(
        CheckDevices(Parse("ppo {} " + more), TwoLearners(), gpus).message());
  }
};

TEST_F(CheckDevicesTest, AutoAlwaysFits) {
  EXPECT_EQ(Check("", 0), "");
  EXPECT_EQ(Check("", 1), "");
}

TEST_F(CheckDevicesTest, CudaNeedsAGpu) {
  EXPECT_THAT(Check("runtime { device: \"cuda\" }", 0),
              HasSubstr("runtime.device=cpu"));
  EXPECT_EQ(Check("runtime { device: \"cuda\" }", 1), "");
}

TEST_F(CheckDevicesTest, NcclNeedsAGpuForEachLearner) {
  const std::string nccl = "distributed { backend: NCCL } ";
  EXPECT_THAT(Check(nccl, 0), HasSubstr("--backend gloo"));
  EXPECT_THAT(Check(nccl, 1), HasSubstr("two learners on one GPU"));
  EXPECT_EQ(Check(nccl, 2), "");
  EXPECT_THAT(Check(nccl + "runtime { device: \"cuda:0\" }", 2),
              HasSubstr("two learners on one GPU"));
  EXPECT_THAT(Check(nccl + "runtime { device: \"cpu\" }", 2),
              HasSubstr("runtime.device is \"cpu\""));
}

}  // namespace
}  // namespace flotilla
