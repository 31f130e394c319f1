#include "envserver/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "envserver/envs/ale_emulator.h"
#include "envserver/envs/sleep.h"
#include "services/env/group_layout.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(RegistryTest, ListsEveryEnvironmentSorted) {
  const std::vector<std::string> ids = EnvironmentRegistry().List();
  EXPECT_THAT(ids, Contains("CartPole-v1"));
  EXPECT_THAT(ids, Contains("Pendulum-v1"));
  EXPECT_THAT(ids, Contains("Sleep"));
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
}

TEST(RegistryTest, EverySpecificationCanBeServed) {
  const EnvironmentRegistry registry;
  for (const std::string& id : registry.List()) {
    if (id.starts_with("ALE/")) continue;  // 100 ROMs; see ale_emulator_test
    ASSERT_OK_AND_ASSIGN(const auto env, registry.Make(id, {}, 0));
    EXPECT_EQ(env->spec().env_id(), id);
    const int agents = std::max(env->spec().agents(), 2);
    EXPECT_OK(MakeGroupLayout(env->spec(), 2 * agents, 2));
  }
}

TEST(RegistryTest, AnUnknownIdNamesTheNearest) {
  const EnvironmentRegistry registry;
  std::map<std::string, std::string> typos = {{"CartPole-v0", "CartPole-v1"},
                                              {"CartPole-v7", "CartPole-v1"},
                                              {"cartpole", "CartPole-v1"},
                                              {"maze", "Maze"}};
  if (!ListAtariGames().empty()) {
    typos.insert({{"Breakout-v5", "ALE/Breakout-v5"},
                  {"PongNoFrameskip-v4", "ALE/Pong-v5"}});
  } else {
    typos.insert({{"Breakout-v5", "Breakout"}});
  }
  for (const auto& [typed, meant] : typos) {
    EXPECT_THAT(registry.Make(typed, {}, 0),
                StatusIs(absl::StatusCode::kNotFound,
                         HasSubstr("did you mean \"" + meant + "\"")));
  }
  EXPECT_THAT(registry.Make("Whatever", {}, 0),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("`flotilla envs` lists them"),
                             Not(HasSubstr("did you mean")))));
}

TEST(RegistryTest, AnIdThatCannotBeOneSaysHowItIsWritten) {
  const EnvironmentRegistry registry;
  const RegistryFactory factory(&registry, 1);
  for (const char* id : {"ALE/Breakout-v4", "ALE/-v5"}) {
    EXPECT_THAT(factory.Describe(id, {}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("ALE/<Game>-v5")));
  }
  for (const char* id : {"gym:", "gym:a::b", "gym:a:b:c", "pettingzoo:"}) {
    EXPECT_THAT(factory.Describe(id, {}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("gym:package:ID")));
  }
}

TEST(RegistryTest, OptionsOfAnotherEnvironmentAreRefused) {
  const EnvironmentRegistry registry;
  v1::EnvOptions options;
  options.mutable_atari();
  EXPECT_THAT(registry.Make("CartPole-v1", options, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("env.options.atari is set, but CartPole-v1")));
  options.Clear();
  (*options.mutable_gym_kwargs())["a"] = "1";
  EXPECT_THAT(registry.Make("Sleep", options, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("env.options.gym_kwargs")));
  options.Clear();
  options.mutable_sleep()->set_step_ms(2);
  EXPECT_OK(registry.Make("Sleep", options, 0));
  options.set_max_episode_steps(-1);
  EXPECT_THAT(registry.Make("Sleep", options, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("max_episode_steps is -1")));
  options.Clear();
  (*options.mutable_kwargs())["size"] = "9";
  EXPECT_THAT(registry.Make("Maze", options, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("Maze reads env.options.maze instead")));
  EXPECT_THAT(registry.Make("CartPole-v1", options, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("takes no such options; remove it")));
}

TEST(RegistryTest, DescribeTellsTheLimitOfTheOptions) {
  const EnvironmentRegistry registry;
  const RegistryFactory factory(&registry, 1);
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
  EXPECT_THAT(EnvironmentRegistry().Make("ALE/Pong-v5", {}, 0),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("flotilla install atari")));
}

// ---- One's own

// A Sleep, so that what it was made from can be seen.
class Mine {
 public:
  Mine() {
    registry_.Add(
        "Mine-v0",
        [this](const EnvironmentArguments& arguments) {
          made_ = absl::StrCat(
              arguments.Int("size"), " ", arguments.Number("wind"), " ",
              arguments.Switch("wet"), " ", arguments.Text("map"), " ",
              FormatJson(arguments.Value("goal")));
          return Sleep::Make(v1::SleepOptions(), arguments.worker_id());
        },
        {{"wind", 0.5, "m/s"},
         {"size", 8, "cells a side"},
         {"wet", false, ""},
         {"map", "4x4", ""},
         {"goal", nullptr, ""}});
  }

  absl::Status Make(const std::map<std::string, std::string>& kwargs) {
    v1::EnvOptions options;
    options.mutable_kwargs()->insert(kwargs.begin(), kwargs.end());
    return registry_.Make("Mine-v0", options, 0).status();
  }
  const EnvironmentRegistry& registry() const { return registry_; }
  const std::string& made() const { return made_; }

 private:
  EnvironmentRegistry registry_;
  std::string made_;
};

TEST(OwnEnvironmentTest, ItIsListedDescribedAndMadeFromItsOptions) {
  Mine mine;
  EXPECT_THAT(mine.registry().List(), Contains("Mine-v0"));
  EXPECT_OK(mine.Make({}));
  EXPECT_EQ(mine.made(), "8 0.5 0 4x4 null");
  EXPECT_OK(mine.Make({{"size", "9"},
                       {"wind", "2"},
                       {"wet", "true"},
                       {"map", "8x8"},
                       {"goal", "[1, 2]"}}));
  EXPECT_EQ(mine.made(), "9 2 1 8x8 [1,2]");
  // A text that could be something else is a text.
  EXPECT_OK(mine.Make({{"map", "88"}}));
  EXPECT_EQ(mine.made(), "8 0.5 0 88 null");
  const RegistryFactory factory(&mine.registry(), 1);
  ASSERT_OK_AND_ASSIGN(const v1::EnvSpec spec, factory.Describe("Mine-v0", {}));
  EXPECT_EQ(spec.env_id(), "Mine-v0");
  std::vector<std::string> declared;
  for (const v1::EnvOption& option : spec.option()) {
    declared.push_back(absl::StrCat(option.name(), "=", option.default_json(),
                                    " ", option.help()));
  }
  EXPECT_THAT(declared,
              ElementsAre("goal=null ", "map=\"4x4\" ", "size=8 cells a side",
                          "wet=false ", "wind=0.5 m/s"));
}

TEST(OwnEnvironmentTest, AnOptionThatDoesNotFitIsRefusedByName) {
  Mine mine;
  EXPECT_THAT(mine.Make({{"siz", "9"}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("env.options.kwargs.siz is set, but "
                                       "Mine-v0 has no such option"),
                             HasSubstr("did you mean \"size\"?"),
                             HasSubstr("goal, map, size, wet, wind"))));
  EXPECT_THAT(mine.Make({{"size", "large"}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("env.options.kwargs.size is large, want an "
                                 "integer, as its default is: 8")));
  EXPECT_THAT(mine.Make({{"size", "0.5"}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("want an integer")));
  EXPECT_THAT(mine.Make({{"wet", "1"}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("want true or false")));
}

TEST(OwnEnvironmentTest, WhatPlaysSaysItsIdOptionsAndLimit) {
  Mine mine;
  const RegistryFactory factory(&mine.registry(), 1);
  v1::Hello hello;
  hello.set_env_id("Mine-v0");
  hello.set_num_envs(2);
  hello.set_num_groups(1);
  hello.mutable_options()->set_max_episode_steps(3);
  struct : VectorEnv::Listener {
    void OnGroupDone(int, absl::Duration) override {}
    void OnFailure(absl::Status) override {}
  } listener;
  ASSERT_OK_AND_ASSIGN(const auto env, factory.Make(hello, &listener));
  EXPECT_EQ(env->spec().env_id(), "Mine-v0");
  EXPECT_EQ(env->spec().max_episode_steps(), 3);
  EXPECT_EQ(env->spec().option_size(), 5);
}

TEST(OwnEnvironmentTest, WhatAMakerThrowsIsTold) {
  EnvironmentRegistry registry;
  registry.Add("Broken-v0",
               [](const EnvironmentArguments&)
                   -> absl::StatusOr<std::unique_ptr<MultiAgentEnvironment>> {
                 throw std::runtime_error("level file castle.map is missing");
               });
  registry.AddBatch(
      "Broken-v1",
      [](const EnvironmentArguments&, size_t)
          -> absl::StatusOr<std::unique_ptr<BatchEnvironment>> { throw 7; });
  EXPECT_THAT(
      RegistryFactory(&registry, /*threads=*/1).Describe("Broken-v0", {}),
      StatusIs(absl::StatusCode::kInternal,
               "level file castle.map is missing"));
  EXPECT_THAT(registry.MakeBatch("Broken-v1", {}, 0, 4),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("an exception that is no")));
}

TEST(OwnEnvironmentDeathTest, TwoOfOneNameAreTheProgramsMistake) {
  EnvironmentRegistry registry;
  const auto make = [](const EnvironmentArguments& arguments) {
    return Sleep::Make(v1::SleepOptions(), arguments.worker_id());
  };
  EXPECT_DEATH(registry.Add("Maze", make),
               "there are two environments \"Maze\"");
}

}  // namespace
}  // namespace flotilla
