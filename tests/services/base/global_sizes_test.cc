#include "services/base/global_sizes.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include "services/base/config.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

v1::RunConfig Parse(const std::string& text) {
  v1::RunConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

v1::RunConfig Global(const std::string& text) {
  return Parse(text + " distributed { sizes: GLOBAL }");
}

TEST(GlobalSizesTest, PerLearnerIsLeftAlone) {
  const v1::RunConfig config = Parse("ppo {} env { num_envs: 7 groups: 1 }");
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig same, SizesOfLearner(config, 3));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(same, config));
}

// The whole job's batch is the same for any number of learners.
TEST(GlobalSizesTest, PpoAndImpalaDivideTheirEnvironments) {
  for (const std::string algorithm : {"ppo {}", "impala { minibatches: 4 }"}) {
    for (const int world : {1, 2, 4}) {
      ASSERT_OK_AND_ASSIGN(
          const v1::RunConfig share,
          SizesOfLearner(Global(algorithm + " env { num_envs: 16 }"), world));
      EXPECT_EQ(share.env().num_envs() * world, 16);
      EXPECT_EQ(share.distributed().sizes(), v1::PER_LEARNER);
      EXPECT_EQ(share.rollout().length(), 128);
      EXPECT_OK(Validate(share));
    }
  }
}

TEST(GlobalSizesTest, DqnDividesItsBatchAndReplayToo) {
  ASSERT_OK_AND_ASSIGN(
      const v1::RunConfig share,
      SizesOfLearner(Global("dqn { learning_starts: 500 } env { num_envs: 8 }"),
                     4));
  EXPECT_EQ(share.env().num_envs(), 2);
  EXPECT_EQ(share.dqn().batch_size(), 8);
  EXPECT_EQ(share.dqn().replay_capacity(), 25000);
  EXPECT_EQ(share.dqn().learning_starts(), 500);  // global as it was
  EXPECT_EQ(share.dqn().updates_per_rollout(), 10);
}

TEST(GlobalSizesTest, WhatDoesNotDivideIsRefusedNamingWhatWould) {
  EXPECT_THAT(
      SizesOfLearner(Global("ppo {} env { num_envs: 10 groups: 1 }"), 4),
      StatusIs(kInvalid,
               AllOf(HasSubstr("env.num_envs is 10 for all learners"),
                     HasSubstr("4 learners"), HasSubstr("use 8 or 12"))));
  EXPECT_THAT(
      SizesOfLearner(Global("ppo {} env { num_envs: 4 num_workers: 2 }"), 2),
      StatusIs(kInvalid, AllOf(HasSubstr("(2 * 2) = 8"), HasSubstr("use 8"))));
  EXPECT_THAT(
      SizesOfLearner(Global("dqn { batch_size: 33 replay_capacity: 11 } "
                            "env { num_envs: 8 }"),
                     2),
      StatusIs(kInvalid, AllOf(HasSubstr("dqn.batch_size is 33"),
                               HasSubstr("use 32 or 34"),
                               HasSubstr("dqn.replay_capacity is 11"),
                               HasSubstr("use 10 or 12"))));
}

// A share that divides and still cannot run.
TEST(GlobalSizesTest, AShareIsCheckedAsItIs) {
  const v1::RunConfig large =
      Global("dqn { replay_capacity: 6000000000 } env { num_envs: 24 }");
  EXPECT_OK(Validate(large));
  EXPECT_OK(SizesOfLearner(large, 4));
  EXPECT_THAT(
      SizesOfLearner(large, 2),
      StatusIs(kInvalid, HasSubstr("dqn.replay_capacity is 3000000000")));
  EXPECT_THAT(
      SizesOfLearner(Global("ppo { minibatches: 8 } model { recurrent: LSTM } "
                            "env { num_envs: 8 }"),
                     2),
      StatusIs(kInvalid, AllOf(HasSubstr("a share of one in 2 learners"),
                               HasSubstr("ppo.minibatches is 8"),
                               HasSubstr("env.num_envs = 4"))));
}

}  // namespace
}  // namespace flotilla
