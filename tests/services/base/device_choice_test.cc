#include "services/base/device_choice.h"

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

std::vector<Gpu> Gpus(int count) {
  std::vector<Gpu> gpus;
  for (int i = 0; i < count; ++i) {
    gpus.push_back({"H100", absl::StrCat("GPU-", i), 80ull << 30});
  }
  return gpus;
}

// The device's name, "cuda:1 GPU-1", or why there is none.
std::string Choose(const DeviceRequest& request, int local_rank, int gpus) {
  const auto gpu = ChooseGpu(request, local_rank, Gpus(gpus));
  return gpu.ok() ? DeviceName(*gpu, Gpus(gpus))
                  : std::string(gpu.status().message());
}

TEST(DeviceChoiceTest, IdsAreNumbers) {
  EXPECT_THAT(*ParseDeviceIds("0,0,1"), ElementsAre(0, 0, 1));
  EXPECT_THAT(*ParseDeviceIds("7"), ElementsAre(7));
  for (const char* text : {"", "0,", "-1", "0,x", "GPU-0", "0 1"}) {
    EXPECT_THAT(ParseDeviceIds(text),
                StatusIs(kInvalid, HasSubstr("as in 0,1")))
        << text;
  }
}

TEST(DeviceChoiceTest, CudaIsTheGpuOfTheRanksNumber) {
  for (const char* device : {"auto", "cuda"}) {
    for (int rank = 0; rank < 8; ++rank) {
      EXPECT_EQ(Choose({.device = device, .local_world_size = 8}, rank, 8),
                absl::StrCat("cuda:", rank, " GPU-", rank));
    }
  }
  EXPECT_EQ(Choose({.device = "cuda:3"}, 0, 8), "cuda:3 GPU-3");
}

TEST(DeviceChoiceTest, TheCpuWhereItIsMeant) {
  EXPECT_EQ(Choose({.device = "cpu", .local_world_size = 4}, 3, 2), "cpu");
  EXPECT_EQ(Choose({.device = "auto", .local_world_size = 4}, 3, 0), "cpu");
  EXPECT_EQ(Choose({.device = "rehearsal", .local_world_size = 4}, 3, 2),
            "cpu");
  EXPECT_THAT(
      Choose({.device = "cuda"}, 0, 0),
      HasSubstr("there is none to use here; use --set runtime.device=cpu"));
}

TEST(DeviceChoiceTest, WhatIsNotThereIsNamed) {
  EXPECT_THAT(Choose({.device = "cuda:2"}, 0, 2),
              HasSubstr("names GPU 2, but this host has 2 GPUs"));
  EXPECT_THAT(Choose({.device = "cuda:0"}, 0, 0),
              HasSubstr("there is none to use"));
  EXPECT_THAT(Choose({.ids = {1}}, 0, 1),
              HasSubstr("names GPU 1, but this host has 1 GPU,"));
  EXPECT_THAT(Choose({.device = "gpu"}, 0, 1),
              HasSubstr("use auto, cpu, cuda or cuda:N"));
}

TEST(DeviceChoiceTest, IdsMayRepeatAndNameEveryLearnersGpu) {
  const DeviceRequest request = {.ids = {0, 0, 1}, .local_world_size = 3};
  EXPECT_EQ(Choose(request, 0, 2), "cuda:0 GPU-0");
  EXPECT_EQ(Choose(request, 1, 2), "cuda:0 GPU-0");
  EXPECT_EQ(Choose(request, 2, 2), "cuda:1 GPU-1");
  EXPECT_THAT(Choose({.ids = {0, 0, 1}, .local_world_size = 2}, 0, 2),
              HasSubstr("--device-ids 0,0,1 names 3 GPUs for 2 learners"));
  for (const char* device : {"cpu", "cuda:0"}) {
    EXPECT_THAT(Choose({.device = device, .ids = {0}}, 0, 2),
                HasSubstr("contradicts runtime.device"));
  }
}

TEST(DeviceChoiceTest, SharingIsNeverAnAccident) {
  EXPECT_THAT(Choose({.device = "auto", .local_world_size = 3}, 0, 2),
              HasSubstr("3 learners on this host, but 2 GPUs; use "
                        "--nproc-per-node 2, or --set runtime.device=cpu, or "
                        "share on purpose: --backend gloo --device-ids 0,1,0"));
  EXPECT_THAT(Choose({.device = "cuda:1", .local_world_size = 2}, 0, 2),
              HasSubstr("--device-ids 1,1"));
}

// srun --gpus-per-task=1: every task sees its own GPU as number 0.
TEST(DeviceChoiceTest, ATaskThatSeesOneGpuTakesIt) {
  const DeviceRequest bound = {.local_world_size = 4, .given_rank = true};
  EXPECT_EQ(Choose(bound, 3, 1), "cuda:0 GPU-0");
  EXPECT_EQ(Choose(bound, 3, 4), "cuda:3 GPU-3");
  EXPECT_THAT(Choose(bound, 3, 2), HasSubstr("4 learners on this host"));
}

TEST(DeviceChoiceTest, AnIdentityIsTheGpusNotItsNames) {
  EXPECT_EQ(GpuIdentity("cuda:0 GPU-7", "a"), GpuIdentity("cuda:3 GPU-7", "b"));
  EXPECT_NE(GpuIdentity("cuda:0", "a"), GpuIdentity("cuda:0", "b"));
  EXPECT_EQ(GpuIdentity("cpu", "a"), "");
  EXPECT_EQ(GpuIdentity("", "a"), "");
}

}  // namespace
}  // namespace flotilla
