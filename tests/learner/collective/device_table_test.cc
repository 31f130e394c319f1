// From the GPUs of a host to what carries the gradients: the launcher's plan,
// the learners' choice and the choice of a backend, on one table.

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/topology.h"
#include "launcher/train_plan.h"
#include "learner/collective/backend.h"
#include "learner/collective/rank_device.h"
#include "services/base/config.h"

namespace flotilla {
namespace {

struct Case {
  const char* name;
  int gpus = 0;                             // of the host
  int mig = -1;                             // which of them is divided,
  int instances = 1;                        // and into how many
  std::optional<std::string> visible = {};  // CUDA_VISIBLE_DEVICES
  std::string device = "auto";
  std::optional<std::string> learners = {};  // --nproc-per-node
  std::vector<int> ids = {};                 // --device-ids
  std::string backend = "BACKEND_AUTO";
  // "GLOO: cpu cpu", or a part of the refusal.
  std::string expected = {};
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class FakeDriver : public GpuDriver {
 public:
  explicit FakeDriver(std::vector<Gpu> gpus) : gpus_(std::move(gpus)) {}
  std::string Problem() override { return ""; }
  std::string Version() override { return "580.1"; }
  std::vector<Gpu> Gpus() override { return gpus_; }
  GpuUse Use(const std::string&) override { return {}; }

 private:
  const std::vector<Gpu> gpus_;
};

std::string RunCase(const Case& c) {
  std::vector<Gpu> gpus;
  for (int i = 0; i < c.gpus; ++i) {
    gpus.push_back(
        {.name = "H100",
         .uuid = std::string("GPU-") + static_cast<char>('a' + i),
         .memory_bytes = 1,
         .instances = i == c.mig ? std::optional(c.instances) : std::nullopt});
  }
  FakeDriver driver(gpus);
  gpus = SurveyGpus(&driver, c.visible).gpus;

  // The launcher.
  v1::RunConfig config;
  google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("ppo {} runtime { device: \"", c.device,
                   "\" } distributed { backend: ", c.backend, " }"),
      &config);
  config = Resolved(config);
  const auto topology =
      DetectTopology({.nproc_per_node = c.learners}, {}, gpus.size());
  if (!topology.ok()) return std::string(topology.status().message());
  const auto planned = PlanDevices(config, *topology, c.ids, gpus);
  if (!planned.ok()) return std::string(planned.status().message());

  // The learners, whose LibTorch sees the same, and what they register.
  v1::Assignment assignment;
  std::vector<std::string> names;
  for (int rank = 0; rank < topology->num_learners; ++rank) {
    const std::vector<Gpu> seen = GpusOfTorch(gpus, gpus.size());
    const auto gpu = ChooseGpu({.device = config.runtime().device(),
                                .ids = c.ids,
                                .local_world_size = topology->local_world_size},
                               rank, seen);
    if (!gpu.ok()) return absl::StrCat("a learner: ", gpu.status().message());
    const std::string name = DeviceName(*gpu, seen);
    EXPECT_EQ(name, (*planned)[rank]);
    v1::Member* member = assignment.add_learner();
    member->set_host("host");
    member->set_device(name);
    names.push_back(name);
  }
  assignment.set_world_size(topology->num_learners);
  const auto backend = ChooseBackend(assignment, config.distributed());
  if (!backend.ok())
    return absl::StrCat("a rank: ", backend.status().message());
  return absl::StrCat(v1::Backend_Name(*backend), ": ",
                      absl::StrJoin(names, ", "));
}

class DeviceTableTest : public ::testing::TestWithParam<Case> {};

TEST_P(DeviceTableTest, EndsAsItShould) {
  const std::string result = RunCase(GetParam());
  EXPECT_NE(result.find(GetParam().expected), std::string::npos) << result;
}

const Case kCases[] = {
    // One learner a GPU, found by itself: NCCL is reached.
    {.name = "NoGpu", .gpus = 0, .expected = "GLOO: cpu"},
    {.name = "OneGpu", .gpus = 1, .expected = "NCCL: cuda:0 GPU-a"},
    {.name = "TwoGpus",
     .gpus = 2,
     .expected = "NCCL: cuda:0 GPU-a, cuda:1 GPU-b"},
    {.name = "EightGpus",
     .gpus = 8,
     .expected = "NCCL: cuda:0 GPU-a, cuda:1 GPU-b, cuda:2 GPU-c, cuda:3 "
                 "GPU-d, cuda:4 GPU-e, cuda:5 GPU-f, cuda:6 GPU-g, cuda:7 "
                 "GPU-h"},
    {.name = "TwoGpusNcclAskedFor",
     .gpus = 2,
     .backend = "NCCL",
     .expected = "NCCL: cuda:0 GPU-a, cuda:1 GPU-b"},
    {.name = "TwoGpusGlooAskedFor",
     .gpus = 2,
     .backend = "GLOO",
     .expected = "GLOO: cuda:0 GPU-a, cuda:1 GPU-b"},
    {.name = "TwoGpusAsCuda",
     .gpus = 2,
     .device = "cuda",
     .backend = "NCCL",
     .expected = "NCCL: cuda:0 GPU-a, cuda:1 GPU-b"},
    {.name = "TwoLearnersOfEightGpus",
     .gpus = 8,
     .device = "cuda",
     .learners = "2",
     .expected = "NCCL: cuda:0 GPU-a, cuda:1 GPU-b"},
    {.name = "OneNamedGpu",
     .gpus = 8,
     .device = "cuda:5",
     .learners = "1",
     .expected = "NCCL: cuda:5 GPU-f"},
    // CUDA_VISIBLE_DEVICES.
    {.name = "TwoVisibleInAnotherOrder",
     .gpus = 8,
     .visible = "6,1",
     .expected = "NCCL: cuda:0 GPU-g, cuda:1 GPU-b"},
    {.name = "VisibleByUuid",
     .gpus = 8,
     .visible = "GPU-h,GPU-c",
     .device = "cuda",
     .backend = "NCCL",
     .expected = "NCCL: cuda:0 GPU-h, cuda:1 GPU-c"},
    {.name = "NoneVisible",
     .gpus = 8,
     .visible = "",
     .learners = "2",
     .expected = "GLOO: cpu, cpu"},
    {.name = "NoneVisibleButAskedFor",
     .gpus = 8,
     .visible = "",
     .device = "cuda",
     .expected = "there is none to use here"},
    {.name = "NamedBeyondTheVisible",
     .gpus = 8,
     .visible = "7",
     .device = "cuda:1",
     .expected = "names GPU 1, but this host has 1 GPU,"},
    // Divided GPUs: CUDA shows a process one instance, and nothing beside it.
    {.name = "OneInstance",
     .gpus = 8,
     .visible = "MIG-1",
     .backend = "NCCL",
     .expected = "NCCL: cuda:0 MIG-1"},
    {.name = "TwoInstancesForTwoLearners",
     .gpus = 8,
     .visible = "MIG-1,MIG-2",
     .learners = "2",
     .expected = "2 learners on this host, but 1 GPU"},
    {.name = "AnInstanceAndAWholeGpu",
     .gpus = 8,
     .visible = "3,MIG-2",
     .expected = "NCCL: cuda:0 MIG-2"},
    {.name = "OneOfTwoIsDivided",
     .gpus = 2,
     .mig = 1,
     .expected = "NCCL: cuda:0 GPU-b"},
    {.name = "OneOfThreeIsDividedAndEmpty",
     .gpus = 3,
     .mig = 0,
     .instances = 0,
     .expected = "NCCL: cuda:0 GPU-b, cuda:1 GPU-c"},
    {.name = "TheWholeOneOfThem",
     .gpus = 2,
     .mig = 1,
     .visible = "0",
     .expected = "NCCL: cuda:0 GPU-a"},
    {.name = "InstancesSharedOnPurpose",
     .gpus = 1,
     .visible = "MIG-1",
     .learners = "2",
     .ids = {0, 0},
     .expected = "GLOO: cuda:0 MIG-1, cuda:0 MIG-1"},
    // The CPU on purpose.
    {.name = "CpuBesideGpus",
     .gpus = 2,
     .device = "cpu",
     .expected = "GLOO: cpu, cpu"},
    {.name = "CpuAndNccl",
     .gpus = 2,
     .device = "cpu",
     .backend = "NCCL",
     .expected = "use --backend gloo"},
    {.name = "NcclWithoutAGpu",
     .gpus = 0,
     .backend = "NCCL",
     .expected = "use --backend gloo"},
    // More learners than GPUs.
    {.name = "ThreeLearnersOfTwoGpus",
     .gpus = 2,
     .learners = "3",
     .expected = "3 learners on this host, but 2 GPUs"},
    {.name = "ThreeLearnersOfTwoGpusAsCuda",
     .gpus = 2,
     .device = "cuda",
     .learners = "3",
     .backend = "GLOO",
     .expected = "3 learners on this host, but 2 GPUs"},
    {.name = "TwoLearnersOnANamedGpu",
     .gpus = 8,
     .device = "cuda:0",
     .learners = "2",
     .expected = "puts 2 learners of this host on one GPU"},
    {.name = "NprocGpuWithoutAny",
     .gpus = 0,
     .learners = "gpu",
     .expected = "wants GPUs, and there is none"},
    // --device-ids.
    {.name = "SharedOnPurpose",
     .gpus = 2,
     .learners = "3",
     .ids = {0, 0, 1},
     .expected = "GLOO: cuda:0 GPU-a, cuda:0 GPU-a, cuda:1 GPU-b"},
    {.name = "SharedWithNccl",
     .gpus = 2,
     .learners = "2",
     .ids = {1, 1},
     .backend = "NCCL",
     .expected = "which NCCL refuses"},
    {.name = "IdsInAnyOrder",
     .gpus = 2,
     .ids = {1, 0},
     .backend = "NCCL",
     .expected = "NCCL: cuda:1 GPU-b, cuda:0 GPU-a"},
    {.name = "TooManyIds",
     .gpus = 2,
     .ids = {0, 1, 0},
     .expected = "names 3 GPUs for 2 learners"},
};

INSTANTIATE_TEST_SUITE_P(Hosts, DeviceTableTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

// One that knows more than NVML, and one that finds none; see below.
TEST(GpusOfTorchTest, LibTorchHasTheLastWord) {
  EXPECT_TRUE(GpusOfTorch(std::vector<Gpu>(2), 0).empty());
  const std::vector<Gpu> unnamed = GpusOfTorch({}, 2);
  ASSERT_EQ(unnamed.size(), 2u);
  EXPECT_EQ(DeviceName(1, unnamed), "cuda:1");
}

// A host with one GPU, by NVML.
GpuSurvey OneGpu() {
  FakeDriver driver(std::vector<Gpu>{{.name = "H100", .uuid = "GPU-a"}});
  return SurveyGpus(&driver, std::nullopt);
}

TEST(RankDeviceTest, WithoutCudaGpusAreLeftAlone) {
  const GpuSurvey survey = Usable(OneGpu(), /*built_for_gpus=*/false);
  const auto chosen =
      RankDeviceOf({.local_world_size = 2}, 1, survey, /*seen=*/0);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->name, "cpu");
  const auto refused = RankDeviceOf({.device = "cuda"}, 0, survey, /*seen=*/0);
  EXPECT_NE(refused.status().message().find(
                "this Flotilla was built without CUDA, so that 1 GPU of this "
                "host is not used"),
            std::string::npos)
      << refused.status();
}

TEST(RankDeviceTest, WhereCudaFindsNoneOfTheDriversGpusItIsAskedFor) {
  const GpuSurvey survey = Usable(OneGpu(), /*built_for_gpus=*/true);
  for (const char* device : {"auto", "cuda", "cuda:0"}) {
    const auto refused =
        RankDeviceOf({.device = device}, 0, survey, /*seen=*/0);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()));
    EXPECT_NE(refused.status().message().find(
                  "NVIDIA's driver (580.1) knows 1 GPU, and CUDA can use none"),
              std::string::npos)
        << refused.status();
  }
  const auto cpu = RankDeviceOf({.device = "cpu"}, 0, survey, /*seen=*/0);
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  const auto gpu = RankDeviceOf({}, 0, survey, /*seen=*/1);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  EXPECT_EQ(gpu->name, "cuda:0 GPU-a");
}

TEST(RankDeviceTest, IsTheCpuWhereThereIsNoGpu) {
  if (torch::cuda::device_count() > 0) GTEST_SKIP() << "this host has GPUs";
  const auto chosen = ChooseRankDevice({.local_world_size = 2}, 1);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->name, "cpu");
  EXPECT_TRUE(chosen->device.is_cpu());
  EXPECT_TRUE(absl::IsFailedPrecondition(
      ChooseRankDevice({.device = "cuda"}, 0).status()));
}

}  // namespace
}  // namespace flotilla
