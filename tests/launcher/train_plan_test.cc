#include "launcher/train_plan.h"

#include <google/protobuf/text_format.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/config.h"
#include "services/base/precision.h"

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
  EXPECT_THAT(DescribePlan(config, TwoLearners(), {"cpu", "cpu"}),
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

// The last update begins after 9 of 10 rollouts: 2 learners, 4 environments, 100 steps.
TEST(TrainPlanTest, ARunThatEndsBeforeItLearnsIsWarnedOf) {
  const std::string sizes =
      "env { num_envs: 4 } rollout { length: 100 } total_env_steps: 8000 ";
  EXPECT_EQ(LengthWarning(Parse(sizes + "dqn { learning_starts: 7200 }"),
                          TwoLearners()),
            "");
  EXPECT_THAT(LengthWarning(Parse(sizes + "dqn { learning_starts: 7201 }"),
                            TwoLearners()),
              HasSubstr("dqn.learning_starts is 7,201, and the run is of 8,000 "
                        "steps: nothing is learned in it"));
  EXPECT_THAT(LengthWarning(Parse("sac {} total_updates: 1"), TwoLearners()),
              HasSubstr("--set sac.learning_starts=0"));
  EXPECT_EQ(LengthWarning(Parse("dqn { learning_starts: 0 } total_updates: 1"),
                          TwoLearners()),
            "");
  EXPECT_EQ(LengthWarning(Parse("ppo {} total_updates: 1"), TwoLearners()), "");
}

TEST(TrainPlanTest, TheLongestRunHasItsUpdates) {
  EXPECT_EQ(MakePlan(Parse("ppo {} total_env_steps: 9223372036854775807"),
                     TwoLearners())
                .updates,
            9007199254740992);
}

TEST(TrainPlanTest, TheDescriptionIsWhatADryRunPrints) {
  EXPECT_EQ(DescribePlan(Parse("ppo {}"), TwoLearners(), {"cpu", "cpu"}),
            R"(topology
  nodes              1                         (default)
  node rank          0                         (default)
  learners per node  2                         (--nproc-per-node 2)
  coordinator        127.0.0.1:29400           (default)
  ranks here         0-1 of 2
  device             the CPU
  precision          FP32

  sizes              a learner    global
  environments       4            8
  batch              512          1,024        rollout.length * env.num_envs
  minibatch          128          256
  gradient steps     16                        an update
  updates                         489          for 500,000 steps: 488 and one that passes them

  env workers        1            2            4 environments each, in 2 groups of 2
)");
}

// The reference's 96 samples for all: more learners do not change the batch.
TEST(TrainPlanTest, GlobalSizesAreSharedOutAndBothAreShown) {
  const v1::RunConfig config =
      Parse("ppo {} env { num_envs: 16 } distributed { sizes: GLOBAL }");
  const v1::RunConfig share = PlanSizes(config, TwoLearners()).value();
  const TrainPlan plan = MakePlan(share, TwoLearners());
  EXPECT_EQ(plan.num_envs, 8);
  EXPECT_EQ(plan.batch * plan.world_size, 16 * 128);
  EXPECT_THAT(DescribePlan(share, TwoLearners(), {"cpu", "cpu"}),
              HasSubstr("  environments       8            16\n"));
}

TEST(TrainPlanTest, GlobalSizesNeedAFixedNumberOfLearners) {
  const v1::RunConfig config =
      Parse("ppo {} env { num_envs: 16 } distributed { sizes: GLOBAL }");
  const Topology elastic = DetectTopology({.nproc_per_node = "1",
                                           .nnodes = "1:2",
                                           .node_rank = 0,
                                           .coordinator = "127.0.0.1:29400"},
                                          {}, 0)
                               .value();
  const auto refused = PlanSizes(config, elastic);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("distributed.sizes is GLOBAL, but --nnodes 1:2"));
  EXPECT_TRUE(PlanSizes(Parse("ppo {}"), elastic).ok());
}

TEST(TrainPlanTest, RolloutsCollectedAheadAreNamed) {
  const auto plan = [](const std::string& text) {
    return DescribePlan(Parse(text), TwoLearners(), {"cpu", "cpu"});
  };
  EXPECT_THAT(plan("impala {}"),
              HasSubstr("rollouts           free running              4 "
                        "waiting, dropped beyond a lag of 8 updates\n"));
  EXPECT_THAT(plan("ppo {} rollout { overlap_one_update: true }"),
              HasSubstr("rollouts           one ahead "));
  EXPECT_THAT(plan("ppo {}"), testing::Not(HasSubstr("rollouts ")));
}

class PlanDevicesTest : public testing::Test {
 protected:
  // "cuda:0 GPU-0, cuda:1 GPU-1" on a host with `gpus`, or why not.
  std::string Plan(const std::string& more, int gpus,
                   const std::vector<int>& ids = {}) {
    std::vector<Gpu> there;
    for (int i = 0; i < gpus; ++i) {
      there.push_back({"H100", absl::StrCat("GPU-", i), 1});
    }
    const auto devices =
        PlanDevices(Parse("ppo {} " + more), TwoLearners(), ids, there);
    return devices.ok() ? absl::StrJoin(*devices, ", ")
                        : std::string(devices.status().message());
  }
};

TEST_F(PlanDevicesTest, AutoTakesWhatThereIsForEveryone) {
  EXPECT_EQ(Plan("", 0), "cpu, cpu");
  EXPECT_EQ(Plan("", 2), "cuda:0 GPU-0, cuda:1 GPU-1");
}

// However it is spelled, and whatever carries the gradients.
TEST_F(PlanDevicesTest, MoreLearnersThanGpusAreRefused) {
  for (const char* device : {"auto", "cuda", "cuda:0"}) {
    for (const char* backend : {"BACKEND_AUTO", "NCCL", "GLOO"}) {
      EXPECT_THAT(
          Plan(absl::StrCat("runtime { device: \"", device,
                            "\" } distributed { backend: ", backend, " }"),
               1),
          HasSubstr("--backend gloo --device-ids 0,0"));
    }
  }
}

TEST_F(PlanDevicesTest, OnPurposeTheyShareButNotWithNccl) {
  EXPECT_EQ(Plan("", 1, {0, 0}), "cuda:0 GPU-0, cuda:0 GPU-0");
  EXPECT_EQ(Plan("distributed { backend: GLOO }", 2, {1, 1}),
            "cuda:1 GPU-1, cuda:1 GPU-1");
  EXPECT_THAT(Plan("distributed { backend: NCCL }", 2, {1, 1}),
              HasSubstr("which NCCL refuses; use --backend gloo"));
  EXPECT_EQ(Plan("distributed { backend: NCCL }", 2, {1, 0}),
            "cuda:1 GPU-1, cuda:0 GPU-0");
}

TEST_F(PlanDevicesTest, NcclNeedsAGpuForEachLearner) {
  const std::string nccl = "distributed { backend: NCCL } ";
  EXPECT_THAT(Plan(nccl, 0), HasSubstr("--backend gloo"));
  EXPECT_EQ(Plan(nccl, 2), "cuda:0 GPU-0, cuda:1 GPU-1");
  EXPECT_THAT(Plan(nccl + "runtime { device: \"cpu\" }", 2),
              HasSubstr("runtime.device is \"cpu\""));
}

// Of two learners on "cuda:0 GPU-0" and "cuda:1 GPU-1", each of the compute
// capability that is given, or on the CPU, of which 0 is said.
v1::Precision PrecisionOf(const std::string& wanted, int first, int second) {
  std::vector<Gpu> gpus;
  std::vector<std::string> devices;
  for (const int capability : {first, second}) {
    const std::string uuid = absl::StrCat("GPU-", gpus.size());
    gpus.push_back({"", uuid, 1});
    gpus.back().compute_capability = capability;
    devices.push_back(capability == 0 ? "cpu" : absl::StrCat("cuda:0 ", uuid));
  }
  const v1::RunConfig config =
      Parse("ppo {} runtime { precision: " + wanted + " }");
  return PlanPrecision(config, devices, gpus).value();
}

TEST(PlanPrecisionTest, AutoGoesByTheSlowestDevice) {
  EXPECT_EQ(PrecisionOf("PRECISION_AUTO", 80, 90), v1::BF16);
  EXPECT_EQ(PrecisionOf("PRECISION_AUTO", 80, 75), v1::FP32);
  EXPECT_EQ(PrecisionOf("PRECISION_AUTO", 75, 80), v1::FP32);
  const v1::Precision here =
      ChoosePrecision(v1::PRECISION_AUTO, ArithmeticOfCpu()).value();
  EXPECT_EQ(PrecisionOf("PRECISION_AUTO", 0, 0), here);
  EXPECT_EQ(PrecisionOf("PRECISION_AUTO", 0, 75), v1::FP32);
  // A GPU of which nothing is known.
  const auto unknown =
      PlanPrecision(Parse("ppo {} runtime { precision: PRECISION_AUTO }"),
                    {"cuda:0 GPU-7"}, {});
  ASSERT_TRUE(unknown.ok()) << unknown.status();
  EXPECT_EQ(*unknown, v1::FP32);
  // What computes as it was saved.
  EXPECT_EQ(
      PrecisionOf("PRECISION_AUTO } model { torchscript: 'net.pt'", 80, 80),
      v1::FP32);
  EXPECT_EQ(PrecisionOf("PRECISION_AUTO } model { encoder: MLP", 80, 80),
            v1::FP32);
  EXPECT_EQ(PrecisionOf("PRECISION_AUTO } model { encoder: MLP leaf { path: '' "
                        "hidden: 256 }",
                        80, 80),
            v1::FP32);
  EXPECT_EQ(PrecisionOf("PRECISION_AUTO } model { encoder: MLP leaf { path: "
                        "'rgb' encoder: RESNET }",
                        80, 80),
            v1::BF16);
  EXPECT_EQ(PrecisionOf("PRECISION_AUTO } model { encoder: MLP plugin: 'n.so'",
                        80, 80),
            v1::BF16);
}

TEST(PlanPrecisionTest, WhatIsNamedHoldsForAll) {
  EXPECT_EQ(PrecisionOf("BF16 } model { encoder: MLP", 80, 80), v1::BF16);
  EXPECT_EQ(PrecisionOf("BF16", 75, 0), v1::BF16);
  EXPECT_EQ(PrecisionOf("FP32", 90, 90), v1::FP32);
  EXPECT_EQ(PrecisionOf("TF32", 80, 90), v1::TF32);
  const auto refused =
      PlanPrecision(Parse("ppo {} runtime { precision: TF32 }"), {"cpu"}, {});
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("use FP32, BF16 or PRECISION_AUTO"));
}

}  // namespace
}  // namespace flotilla
