#include "learner/rollout/memory_needs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "services/base/config.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::HasSubstr;

v1::EnvSpec Spec(v1::DType dtype, const std::vector<int64_t>& shape,
                 int64_t actions = 4) {
  v1::EnvSpec spec;
  spec.set_env_id("Test");
  v1::Leaf* leaf = spec.add_observation();
  leaf->set_dtype(dtype);
  for (int64_t dim : shape) leaf->add_shape(dim);
  leaf = spec.add_action();
  leaf->set_dtype(v1::INT64);
  leaf->set_num_values(actions);
  return spec;
}

v1::RunConfig Ppo() {
  v1::RunConfig config;
  config.mutable_env()->set_id("Test");
  config.mutable_ppo();
  return Resolved(config);
}

double Need(const v1::RunConfig& config, const Spaces& spaces,
            const std::string& what) {
  for (const MemoryNeed& need : MemoryNeeds(
           config, spaces, PlanEncoders(spaces, config.model()).value())) {
    if (need.what.find(what) != std::string::npos) return need.bytes;
  }
  ADD_FAILURE() << "no " << what;
  return 0;
}

TEST(MemoryNeedsTest, SizesFollowConfigurationAndSpaces) {
  v1::RunConfig config = Ppo();
  config.mutable_env()->set_num_envs(8);
  config.mutable_rollout()->set_length(100);
  const Spaces vector = DescribeSpaces(Spec(v1::FLOAT32, {10}), {}).value();
  // 101 observations of 40 bytes, 100 actions of 8 and 28 more.
  EXPECT_EQ(Need(config, vector, "1 rollout of"), 8 * (101 * 40 + 100 * 36));
  // Two hidden layers of 64 each for policy and value; four actions, one value.
  EXPECT_EQ(Need(config, vector, "the network"),
            7 * 4 * (2 * (11 * 64 + 65 * 64) + 65 * 5));
  const Spaces frames = DescribeSpaces(Spec(v1::UINT8, {84, 84}), {}).value();
  EXPECT_EQ(Need(config, frames, "1 rollout of"), 8 * (101 * 7056 + 100 * 36));
  config.mutable_selfplay()->set_pool_size(100);
  EXPECT_EQ(Need(config, vector, "100 earlier selves (selfplay.pool_size)"),
            100 * 4 * 4 * (2 * (11 * 64 + 65 * 64) + 65 * 5));
  v1::RunConfig dqn;
  dqn.mutable_dqn()->set_replay_capacity(1000000);
  dqn = Resolved(dqn);
  EXPECT_GE(Need(dqn, frames, "dqn's replay"), 7056e6);
  EXPECT_LE(Need(dqn, frames, "dqn's replay"), 7200e6);
  EXPECT_EQ(MemoryNeeds(dqn, frames, PlanEncoders(frames, dqn.model()).value())
                .size(),
            5);
  dqn.mutable_checkpoint()->set_replay(true);
  EXPECT_GE(Need(dqn, frames, "a copy of dqn's replay"), 7056e6);
  dqn.mutable_runtime()->set_rollouts_on(v1::DEVICE);
  EXPECT_LE(Need(dqn, frames, "dqn's replay"), 144e6);  // the device has frames
}

// What actors did is scored anew: whole sequences at once.
TEST(MemoryNeedsTest, RecurrentImpalaHoldsEveryStackAtOnce) {
  v1::RunConfig impala;
  impala.mutable_impala()->set_minibatches(4);
  impala = Resolved(impala);  // 128 steps of 4 environments
  const Spaces frames = DescribeSpaces(Spec(v1::UINT8, {84, 84}), {}).value();
  const double step = 4 * 7056 + 4 * 4 * 4;
  EXPECT_EQ(Need(impala, frames, "128 steps at once"), 128 * step);
  impala.mutable_model()->set_recurrent(v1::LSTM);
  EXPECT_EQ(Need(impala, frames, "516 steps at once"), 129 * 4 * step);
}

TEST(MemoryNeedsTest, ANetworkOfOnesOwnIsAsLargeAsItsFile) {
  const TempDir dir;
  std::ofstream(dir / "net.pt") << std::string(100000, 'x');
  v1::RunConfig config = Ppo();
  config.mutable_model()->set_torchscript(dir / "net.pt");
  const Spaces vector = DescribeSpaces(Spec(v1::FLOAT32, {10}), {}).value();
  EXPECT_EQ(Need(config, vector, "net.pt: 100000 bytes"), 7 * 100000);
}

TEST(MemoryNeedsTest, WhatAStrangerClaimsIsRefusedByName) {
  const MemoryBudget budget = {1e9, "runtime.memory_budget_bytes"};
  const Spaces modest = DescribeSpaces(Spec(v1::FLOAT32, {10}), {}).value();
  EXPECT_OK(CheckMemory(Ppo(), modest, budget));
  for (const int64_t actions : {int64_t{50000000}, int64_t{1} << 40,
                                std::numeric_limits<int64_t>::max()}) {
    const Spaces claimed =
        DescribeSpaces(Spec(v1::FLOAT32, {10}, actions), {}).value();
    EXPECT_THAT(CheckMemory(Ppo(), claimed, budget),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("env \"Test\""),
                               HasSubstr(absl::StrCat(actions, " actions")),
                               HasSubstr("it may take 1.0 GB "
                                         "(runtime.memory_budget_bytes)"))));
  }
  // What is ours is told the same way.
  v1::RunConfig dqn;
  dqn.mutable_dqn()->set_replay_capacity(std::numeric_limits<int64_t>::max());
  EXPECT_THAT(CheckMemory(Resolved(dqn), modest, budget),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("dqn.replay_capacity")));
  v1::RunConfig wide = Ppo();
  wide.mutable_rollout()->set_length(1 << 30);
  EXPECT_THAT(CheckMemory(wide, modest, budget),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("rollout.length")));
}

}  // namespace
}  // namespace flotilla
