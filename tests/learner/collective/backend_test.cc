#include "learner/collective/backend.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "services/base/device_choice.h"

namespace flotilla {
namespace {

struct Place {
  std::string host;
  std::string device;
};

v1::Assignment On(const std::vector<Place>& places) {
  v1::Assignment assignment;
  for (const Place& place : places) {
    v1::Member* member = assignment.add_learner();
    member->set_id("learner/" + place.host);
    member->set_host(place.host);
    member->set_device(place.device);
  }
  assignment.set_world_size(static_cast<int>(places.size()));
  return assignment;
}

v1::DistributedConfig Asking(v1::Backend backend) {
  v1::DistributedConfig config;
  config.set_backend(backend);
  return config;
}

// As learners register them on a host with two GPUs; the host's name is part
// of the UUIDs here.
Place On(const std::string& host, std::optional<int> gpu) {
  const std::vector<Gpu> gpus = {{"H100", "GPU-" + host + "0", 1},
                                 {"H100", "GPU-" + host + "1", 1}};
  return {host, DeviceName(gpu, gpus)};
}

const Place kCpuA = On("a", std::nullopt);
const Place kGpuA0 = On("a", 0);
const Place kGpuA1 = On("a", 1);
const Place kGpuB0 = On("b", 0);

TEST(BackendTest, AutoIsNcclWhenEveryRankHasAGpuOfItsOwn) {
  EXPECT_EQ(
      *ChooseBackend(On({kGpuA0, kGpuA1, kGpuB0}), Asking(v1::BACKEND_AUTO)),
      v1::NCCL);
}

TEST(BackendTest, AutoIsGlooOtherwise) {
  EXPECT_EQ(*ChooseBackend(On({kCpuA, kCpuA}), Asking(v1::BACKEND_AUTO)),
            v1::GLOO);
  EXPECT_EQ(*ChooseBackend(On({kGpuA0, kCpuA}), Asking(v1::BACKEND_AUTO)),
            v1::GLOO);
  EXPECT_EQ(*ChooseBackend(On({kGpuA0, kGpuA0}), Asking(v1::BACKEND_AUTO)),
            v1::GLOO);
}

TEST(BackendTest, WhatIsAskedForIsTaken) {
  EXPECT_EQ(*ChooseBackend(On({kGpuA0, kGpuA1}), Asking(v1::GLOO)), v1::GLOO);
  EXPECT_EQ(*ChooseBackend(On({kGpuA0, kGpuA1}), Asking(v1::NCCL)), v1::NCCL);
}

TEST(BackendTest, NcclWithoutAGpuNamesTheRankAndTheRemedy) {
  const auto backend = ChooseBackend(On({kGpuA0, kCpuA}), Asking(v1::NCCL));
  EXPECT_TRUE(absl::IsFailedPrecondition(backend.status()));
  const std::string message(backend.status().message());
  EXPECT_NE(message.find("rank 1"), std::string::npos) << message;
  EXPECT_NE(message.find("\"cpu\""), std::string::npos) << message;
  EXPECT_NE(message.find("--backend gloo"), std::string::npos) << message;
}

TEST(BackendTest, NcclOnASharedGpuNamesBothRanks) {
  const auto backend =
      ChooseBackend(On({kGpuA0, kGpuA1, kGpuA0}), Asking(v1::NCCL));
  EXPECT_TRUE(absl::IsFailedPrecondition(backend.status()));
  const std::string message(backend.status().message());
  EXPECT_NE(message.find("ranks 0 and 2 share cuda:0 GPU-a0 of host a"),
            std::string::npos)
      << message;
}

// Two containers of one host, which number it as they please.
TEST(BackendTest, TheSameGpuUnderTwoNamesIsShared) {
  const std::vector<Place> both = {{"pod-0", "cuda:0 GPU-a"},
                                   {"pod-1", "cuda:1 GPU-a"}};
  EXPECT_EQ(*ChooseBackend(On(both), Asking(v1::BACKEND_AUTO)), v1::GLOO);
  EXPECT_FALSE(ChooseBackend(On(both), Asking(v1::NCCL)).ok());
}

// A driver without NVML: numbers tell GPUs apart, on one host.
TEST(BackendTest, WithoutUuidsNumbersAndHostsCount) {
  const std::string first = DeviceName(0, std::vector<Gpu>(2));
  const std::string second = DeviceName(1, std::vector<Gpu>(2));
  EXPECT_EQ(*ChooseBackend(On({{"a", first}, {"a", second}, {"b", first}}),
                           Asking(v1::BACKEND_AUTO)),
            v1::NCCL);
  EXPECT_EQ(*ChooseBackend(On({{"a", first}, {"a", first}}),
                           Asking(v1::BACKEND_AUTO)),
            v1::GLOO);
}

}  // namespace
}  // namespace flotilla
