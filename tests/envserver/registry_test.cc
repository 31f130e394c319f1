#include "envserver/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "envserver/envs/atari_emulator.h"
#include "services/env/group_layout.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::Contains;
using testing::HasSubstr;

TEST(RegistryTest, ListsEveryEnvironmentSorted) {
  const std::vector<std::string> ids = ListEnvironments();
  EXPECT_THAT(ids, Contains("CartPole-v1"));
  EXPECT_THAT(ids, Contains("Pendulum-v1"));
  EXPECT_THAT(ids, Contains("Sleep"));
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
}

TEST(RegistryTest, EverySpecificationCanBeServed) {
  for (const std::string& id : ListEnvironments()) {
    if (id.starts_with("ALE/")) continue;  // 100 ROMs; see ale_emulator_test
    ASSERT_OK_AND_ASSIGN(const auto env, MakeEnvironment(id, {}, 0));
    EXPECT_EQ(env->spec().env_id(), id);
    EXPECT_OK(MakeGroupLayout(env->spec(), 4, 2));
  }
}

TEST(RegistryTest, UnknownIdNamesTheNearest) {
  EXPECT_THAT(MakeEnvironment("CartPole-v0", {}, 0),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("did you mean \"CartPole-v1\"")));
}

TEST(RegistryTest, OptionsOfAnotherEnvironmentAreRefused) {
  v1::EnvOptions options;
  options.mutable_atari();
  EXPECT_THAT(MakeEnvironment("CartPole-v1", options, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("env.options.atari is set, but CartPole-v1")));
  options.Clear();
  (*options.mutable_gym_kwargs())["a"] = "1";
  EXPECT_THAT(MakeEnvironment("Sleep", options, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("env.options.gym_kwargs")));
  options.Clear();
  options.mutable_sleep()->set_step_ms(2);
  EXPECT_OK(MakeEnvironment("Sleep", options, 0));
  options.set_max_episode_steps(-1);
  EXPECT_THAT(MakeEnvironment("Sleep", options, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("max_episode_steps is -1")));
}

TEST(RegistryTest, DescribeTellsTheLimitOfTheOptions) {
  const RegistryFactory factory(1);
  v1::EnvOptions options;
  ASSERT_OK_AND_ASSIGN(v1::EnvSpec spec,
                       factory.Describe("CartPole-v1", options));
  EXPECT_EQ(spec.max_episode_steps(), 500);
  options.set_max_episode_steps(7);
  ASSERT_OK_AND_ASSIGN(spec, factory.Describe("CartPole-v1", options));
  EXPECT_EQ(spec.max_episode_steps(), 7);
}

TEST(RegistryTest, AtariWithoutItsEmulatorSaysHowToGetIt) {
  if (!ListAtariGames().empty()) GTEST_SKIP() << "this build has the emulator";
  EXPECT_THAT(MakeEnvironment("ALE/Pong-v5", {}, 0),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("cmake/setup.sh")));
}

}  // namespace
}  // namespace flotilla
