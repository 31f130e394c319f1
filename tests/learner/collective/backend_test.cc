#include "learner/collective/backend.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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

const Place kCpuA = {"a", "cpu"};
const Place kGpuA0 = {"a", "cuda:0 GPU-1"};
const Place kGpuA1 = {"a", "cuda:1 GPU-2"};
const Place kGpuB0 = {"b", "cuda:0 GPU-1"};

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
  EXPECT_NE(message.find("ranks 0 and 2 share cuda:0 GPU-1 of host a"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace flotilla
