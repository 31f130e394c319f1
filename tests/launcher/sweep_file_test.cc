#include "launcher/sweep_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "services/base/scratch_folder.h"

namespace flotilla {
namespace {

using testing::HasSubstr;

constexpr char kBase[] = R"(
  total_env_steps: 1000
  env { id: "CartPole-v1" num_envs: 4 }
  rollout { length: 16 }
  ppo { minibatches: 4 }
)";

class SweepFileTest : public testing::Test {
 protected:
  // The sweep of `text`, whose base is kBase.
  absl::StatusOr<Json> Read(const std::string& text,
                            const SweepMachine& machine = {},
                            std::optional<int> parallel = std::nullopt) {
    const std::string base = Write("base.textproto", kBase);
    return ReadSweep(
        Write("sweep.textproto", "base: \"" + base + "\"\n" + text), "",
        machine, parallel);
  }

  std::string ErrorOf(const std::string& text) {
    const auto sweep = Read(text);
    return sweep.ok() ? "nothing" : std::string(sweep.status().message());
  }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

  ScratchFolder folder_;
};

TEST_F(SweepFileTest, SaysAllThatASweepNeedsDefaultsIncluded) {
  const auto sweep = Read(R"(
    parameter {
      field: "optimizer.learning_rate" log_uniform { low: 1e-4 high: 1e-2 } }
    parameter { field: "env.num_envs" integer { low: 8 high: 32 step: 8 } }
    parameter { field: "optimizer.schedule"
                choice { value: "LINEAR" value: "constant" } }
    pbt { interval: 100 })");
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  EXPECT_EQ((*sweep)["method"], "RANDOM");
  EXPECT_EQ((*sweep)["trials"], 16);
  EXPECT_EQ((*sweep)["base_text"], kBase);
  EXPECT_EQ((*sweep)["base_seed"], 1);
  EXPECT_EQ((*sweep)["budget"].dump(),
            R"({"field":"total_env_steps","value":1000})");
  EXPECT_EQ((*sweep)["metric"].dump(),
            R"({"name":"score","goal":"MAXIMIZE","lines":1})");
  EXPECT_EQ((*sweep)["pbt"]["quantile"], 0.25);
  EXPECT_EQ((*sweep)["parameters"][0].dump(),
            R"({"field":"optimizer.learning_rate","kind":"log_uniform",)"
            R"("low":0.0001,"high":0.01,"values":[]})");
  EXPECT_EQ((*sweep)["parameters"][1]["step"], 8);
  EXPECT_EQ((*sweep)["parameters"][2]["values"].dump(),
            R"(["LINEAR","constant"])");
}

TEST_F(SweepFileTest, AGridHasItsPoints) {
  const auto sweep = Read(R"(
    method: GRID
    parameter { field: "optimizer.learning_rate"
                log_uniform { low: 1e-4 high: 1e-2 points: 3 } }
    parameter { field: "ppo.clip_ratio" uniform { low: 0.1 high: 0.4 points: 4 } }
    parameter { field: "env.num_envs" integer { low: 4 high: 15 step: 4 } })");
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  const Json& parameters = (*sweep)["parameters"];
  EXPECT_EQ(parameters[0]["values"].dump(), R"(["0.0001","0.001","0.01"])");
  EXPECT_EQ(parameters[1]["values"].dump(), R"(["0.1","0.2","0.3","0.4"])");
  EXPECT_EQ(parameters[2]["values"].dump(), R"(["4","8","12"])");
  EXPECT_EQ((*sweep)["trials"], 36);
}

TEST_F(SweepFileTest, TheBudgetIsInUpdatesWhereItSaysSo) {
  const auto sweep = Read(R"(
    budget { updates: 12 }
    parameter { field: "ppo.epochs" integer { low: 1 high: 4 } })");
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  EXPECT_EQ((*sweep)["budget"].dump(),
            R"({"field":"total_updates","value":12})");
  EXPECT_THAT(ErrorOf("budget { updates: 12 steps: 3 }"),
              HasSubstr("steps and updates; expected one"));
}

TEST_F(SweepFileTest, WhatCannotBeIsToldWithItsPlace) {
  const std::string one =
      "parameter { field: \"ppo.epochs\" integer { low: 1 high: 4 } }\n";
  EXPECT_THAT(ErrorOf(one + "parameter { field: \"ppo\" choice {} }"),
              HasSubstr("sweep.textproto:3:1: parameter ppo: \"ppo\" is a "
                        "section"));
  EXPECT_THAT(ErrorOf(one + "set: \"ppo.epochs=4\""),
              HasSubstr("set says \"ppo.epochs=4\" already"));
  EXPECT_THAT(ErrorOf("parameter { field: \"seed\" choice { value: \"1\" } }"),
              HasSubstr("`seeds` plays each trial"));
  EXPECT_THAT(ErrorOf("parameter { field: \"total_updates\" integer {} }"),
              HasSubstr("that is what `budget` says"));
  EXPECT_THAT(ErrorOf("parameter { field: \"ppo.epochs\" }"),
              HasSubstr("it does not say which values"));
  EXPECT_THAT(ErrorOf("parameter { field: \"model.hidden\" integer {} }"),
              HasSubstr("the field's type is list; use choice"));
  EXPECT_THAT(ErrorOf(one + "pbt { interval: 10 } seeds: 2"),
              HasSubstr("pbt forks single runs"));
  for (const char* field :
       {"optimizer.type", "model.activation", "env.id", "selfplay.pool_size"}) {
    EXPECT_THAT(ErrorOf(one + "parameter { field: \"" + field +
                        "\" choice { value: \"x\" } } pbt { interval: 10 }"),
                HasSubstr("a run that goes on cannot change it"));
  }
  EXPECT_THAT(ErrorOf(one + "sampler: QMC"),
              HasSubstr("sampler is of method OPTUNA, and method is RANDOM"));
  for (const char* group : {"agents", "metrics", "selfplay"}) {
    EXPECT_EQ(ErrorOf(one + "metric { name: \"" + group + "/x\" }"), "nothing");
  }
  EXPECT_THAT(ErrorOf(one + "metric { name: \"score\" lines: 5 }"),
              HasSubstr("metric.lines is of metrics.jsonl"));
  EXPECT_THAT(ErrorOf("parameter { field: \"ppo.clip_ratio\" "
                      "uniform { low: 0.1 high: 0.4 points: 4 } }"),
              HasSubstr("points is of method GRID"));
}

TEST_F(SweepFileTest, TrialsHaveToFitTheMachine) {
  const std::string text =
      "parameter { field: \"ppo.epochs\" integer { low: 1 high: 4 } } "
      "placement { parallel: 2 learners: 2 gpus: 2 cores: 4 }";
  EXPECT_TRUE(Read(text, {.cores = 8, .gpus = 4}).ok());
  EXPECT_THAT(
      std::string(Read(text, {.cores = 8, .gpus = 3}).status().message()),
      HasSubstr("take 4, and this host has 3"));
  EXPECT_THAT(
      std::string(Read(text, {.cores = 7, .gpus = 4}).status().message()),
      HasSubstr(
          "take 8, and this process may use 7; lower placement.parallel"));
  // --parallel counts, whatever the file says.
  const auto fewer = Read(text, {.cores = 4, .gpus = 2}, 1);
  ASSERT_TRUE(fewer.ok()) << fewer.status();
  EXPECT_EQ((*fewer)["placement"]["parallel"], 1);
  for (const SweepMachine& small :
       {SweepMachine{.cores = 11, .gpus = 6}, {.cores = 12, .gpus = 5}}) {
    EXPECT_THAT(std::string(Read(text, small, 3).status().message()),
                HasSubstr("; lower --parallel or placement."));
  }
}

}  // namespace
}  // namespace flotilla
