#include "services/algorithms/algorithm_traits.h"

#include <google/protobuf/text_format.h>

#include <utility>

#include "services/base/config.h"
#include "services/base/config_rules.h"
#include "services/base/global_sizes.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::RunConfig Parse(const std::string& text) {
  v1::RunConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

// A row with nothing but what it has to say.
class Plain : public AlgorithmTraits {
 public:
  explicit Plain(std::string name, bool discrete = true, bool continuous = true)
      : name_(std::move(name)), discrete_(discrete), continuous_(continuous) {}

  std::string name() const override { return name_; }
  bool TakesDiscreteActions() const override { return discrete_; }
  bool TakesContinuousActions() const override { return continuous_; }
  double Discount(const v1::RunConfig&) const override { return 0.5; }
  UpdatePlan PlanOf(const v1::RunConfig&) const override { return {}; }
  double StepsAtOnce(const v1::RunConfig&) const override { return 0; }

 private:
  const std::string name_;
  const bool discrete_, continuous_;
};

absl::Status Register(const std::string& name, bool discrete = true,
                      bool continuous = true) {
  return RegisterAlgorithm(std::make_unique<Plain>(name, discrete, continuous));
}

// ---- The table

TEST(AlgorithmTableTest, TheConfigurationChoosesARow) {
  EXPECT_EQ(TraitsOf(Parse("ppo {}")).name(), "ppo");
  EXPECT_EQ(TraitsOf(Parse("dqn {}")).name(), "dqn");
  EXPECT_EQ(TraitsOf(Parse("impala {}")).name(), "impala");
  EXPECT_EQ(&TraitsOf(Parse("dqn {}")), FindAlgorithm("dqn"));
}

// A row that is forgotten would be an algorithm that nobody can run.
TEST(AlgorithmTableTest, EveryOptionMessageHasARow) {
  const auto* oneof = v1::RunConfig::descriptor()->FindOneofByName("algorithm");
  for (int i = 0; i < oneof->field_count(); ++i) {
    EXPECT_NE(FindAlgorithm(oneof->field(i)->name()), nullptr)
        << oneof->field(i)->name();
  }
}

TEST(AlgorithmTableTest, GlobalSizesAreIntegersOfTheOptionMessage) {
  for (const std::string& name : AlgorithmNames()) {
    const auto* options = v1::RunConfig::descriptor()->FindFieldByName(name);
    if (options == nullptr) continue;
    for (const std::string& size : FindAlgorithm(name)->GlobalSizes()) {
      const auto* field = options->message_type()->FindFieldByName(size);
      ASSERT_NE(field, nullptr) << name << "." << size;
      EXPECT_TRUE(field->type() == field->TYPE_INT32 ||
                  field->type() == field->TYPE_INT64);
    }
  }
}

TEST(AlgorithmTableTest, NoneChosenHasDefaultsAndOneProblem) {
  const v1::RunConfig config;
  EXPECT_EQ(TraitsOf(config).name(), "none");
  EXPECT_EQ(Discount(config), 0.99);
  EXPECT_EQ(CollectionOf(config), Collection::kWhenAsked);
  const std::vector<ConfigProblem> problems = FindProblems(config);
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_EQ(problems[0].path, "algorithm");
  EXPECT_THAT(problems[0].message,
              HasSubstr("is not chosen; add \"ppo {}\", \"dqn {}\""));
}

TEST(AlgorithmTableTest, ARowIsAddedOnceAndFoundByName) {
  EXPECT_EQ(FindAlgorithm("added"), nullptr);
  EXPECT_OK(Register("added"));
  ASSERT_NE(FindAlgorithm("added"), nullptr);
  EXPECT_EQ(FindAlgorithm("added")->name(), "added");
  EXPECT_EQ(AlgorithmNames().back(), "added");
  EXPECT_THAT(Register("added"), StatusIs(absl::StatusCode::kAlreadyExists,
                                          HasSubstr("\"added\" already")));
  EXPECT_THAT(Register("ppo"), StatusIs(absl::StatusCode::kAlreadyExists,
                                        HasSubstr("\"ppo\" already")));
}

TEST(AlgorithmTableTest, ARowNeedsANameAndActions) {
  EXPECT_THAT(Register(""), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("not a name")));
  EXPECT_THAT(Register("none"), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("not a name")));
  EXPECT_THAT(Register("idle", /*discrete=*/false, /*continuous=*/false),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("neither discrete nor continuous")));
  EXPECT_EQ(FindAlgorithm("idle"), nullptr);
}

TEST(AlgorithmTableTest, ARowNeedNotSayMuch) {
  const Plain row("plain");
  const v1::RunConfig config;
  EXPECT_EQ(row.CollectionOf(config), Collection::kWhenAsked);
  EXPECT_TRUE(row.BootstrapsTruncation(config));
  EXPECT_EQ(row.Trunks(config, /*may_split=*/true), 1);
  EXPECT_EQ(row.ReplayOf(config).capacity, 0);
  EXPECT_THAT(row.GlobalSizes(), IsEmpty());
  std::vector<ConfigProblem> problems;
  row.FindProblems(config, &problems);
  EXPECT_THAT(problems, IsEmpty());
}

TEST(AlgorithmTableTest, ActionsThatItDoesNotTakeAreRefusedWithARemedy) {
  const auto problem = [](const AlgorithmTraits& row, const std::string& has) {
    std::vector<float> low, high;
    if (has != "discrete") low = {-1}, high = {1};
    return ActionsProblem(row, /*discrete=*/has != "continuous", low, high);
  };
  for (const std::string has : {"discrete", "continuous", "both"}) {
    EXPECT_EQ(problem(*FindAlgorithm("ppo"), has), "");
    EXPECT_EQ(problem(*FindAlgorithm("impala"), has), "");
  }
  const std::string dqn =
      "dqn needs discrete actions, and this environment's are continuous; "
      "choose ppo";
  EXPECT_EQ(problem(*FindAlgorithm("dqn"), "discrete"), "");
  EXPECT_EQ(problem(*FindAlgorithm("dqn"), "continuous"), dqn);
  EXPECT_EQ(problem(*FindAlgorithm("dqn"), "both"),
            "dqn needs discrete actions, and this environment's are partly "
            "continuous; choose ppo");
  const std::string smooth =
      "smooth needs continuous actions, and this environment's are discrete; "
      "choose ppo";
  const Plain row("smooth", /*discrete=*/false);
  EXPECT_EQ(problem(row, "continuous"), "");
  EXPECT_EQ(problem(row, "discrete"), smooth);
  EXPECT_EQ(problem(row, "both"),
            "smooth needs continuous actions, and this environment's are "
            "partly discrete; choose ppo");
}

// ---- The rows

TEST(AlgorithmRowsTest, EachReadsItsOwnOptions) {
  EXPECT_EQ(Discount(Parse("ppo { discount: 0.1 }")), 0.1);
  EXPECT_EQ(Discount(Parse("dqn { discount: 0.2 }")), 0.2);
  EXPECT_EQ(Discount(Parse("impala { discount: 0.3 }")), 0.3);
  EXPECT_EQ(Discount(Parse("sac { discount: 0.4 }")), 0.4);
  const auto bootstraps = [](const std::string& text) {
    const v1::RunConfig config = Parse(text);
    return TraitsOf(config).BootstrapsTruncation(config);
  };
  EXPECT_TRUE(bootstraps("ppo {}"));
  EXPECT_FALSE(bootstraps("ppo { bootstrap_truncation: false }"));
  EXPECT_TRUE(bootstraps("dqn {}"));
  EXPECT_TRUE(bootstraps("impala {}"));
  EXPECT_TRUE(bootstraps("sac {}"));
}

TEST(AlgorithmRowsTest, OnlyImpalaCollectsAheadUnlessTold) {
  const auto of = [](const std::string& text) {
    return CollectionOf(Parse(text));
  };
  EXPECT_EQ(of("ppo {}"), Collection::kWhenAsked);
  EXPECT_EQ(of("dqn {}"), Collection::kWhenAsked);
  EXPECT_EQ(of("sac {}"), Collection::kWhenAsked);
  EXPECT_EQ(of("impala {}"), Collection::kFreeRunning);
  EXPECT_EQ(of("impala { deterministic_lag: true }"), Collection::kOneAhead);
  for (const std::string name : {"ppo", "dqn", "impala", "sac"}) {
    EXPECT_EQ(of(name + " {} rollout { overlap_one_update: true }"),
              Collection::kOneAhead);
  }
}

TEST(AlgorithmRowsTest, OnlyDqnAndSacKeepAReplay) {
  const auto capacity = [](const std::string& text) {
    const v1::RunConfig config = Parse(text);
    return TraitsOf(config).ReplayOf(config).capacity;
  };
  EXPECT_EQ(capacity("dqn { replay_capacity: 70 }"), 70);
  EXPECT_EQ(capacity("sac { replay_capacity: 80 }"), 80);
  EXPECT_EQ(capacity("ppo {}"), 0);
  EXPECT_EQ(capacity("impala {}"), 0);
  EXPECT_THAT(FindAlgorithm("dqn")->GlobalSizes(),
              ElementsAre("batch_size", "replay_capacity"));
}

TEST(AlgorithmRowsTest, StepsAtOnceAreAMinibatchOrTheBoundOfOne) {
  const auto steps = [](const std::string& text) {
    const v1::RunConfig config = Parse(text);
    return TraitsOf(config).StepsAtOnce(config);
  };
  EXPECT_EQ(steps("ppo { minibatches: 4 }"), 128);
  EXPECT_EQ(steps("ppo { minibatches: 4 max_minibatch: 100 }"), 100);
  EXPECT_EQ(steps("ppo { minibatches: 4 max_minibatch: 200 }"), 128);
  EXPECT_EQ(steps("ppo { minibatches: 0 }"), 512);  // refused elsewhere
  EXPECT_EQ(steps("impala { minibatches: 2 }"), 256);
  // Scored anew, whole sequences and the step after them.
  EXPECT_EQ(steps("impala { minibatches: 2 } model { recurrent: LSTM }"), 516);
  EXPECT_EQ(steps("dqn { batch_size: 7 }"), 7);
  EXPECT_EQ(steps("sac { batch_size: 8 }"), 8);
}

TEST(AlgorithmRowsTest, SacStepsAsOftenAsItsEnvironmentsUnlessTold) {
  const auto plan = [](const std::string& sac) {
    const v1::RunConfig config =
        Parse(sac + " rollout { length: 3 } env { num_envs: 5 }");
    return TraitsOf(config).PlanOf(config);
  };
  EXPECT_EQ(plan("sac {}").gradient_steps, 15);
  EXPECT_EQ(plan("sac {}").minibatch, 256);
  EXPECT_EQ(plan("sac { updates_per_rollout: 2 }").gradient_steps, 2);
}

TEST(AlgorithmRowsTest, SacTakesContinuousActionsOnly) {
  const AlgorithmTraits& sac = *FindAlgorithm("sac");
  const std::vector<float> low = {-1, 0}, high = {1, 5};
  EXPECT_EQ(ActionsProblem(sac, /*discrete=*/false, low, high), "");
  EXPECT_EQ(ActionsProblem(sac, /*discrete=*/true, {}, {}),
            "sac needs continuous actions, and this environment's are "
            "discrete; choose ppo");
  EXPECT_NE(ActionsProblem(sac, /*discrete=*/true, low, high), "");
}

TEST(AlgorithmRowsTest, WhatDoesNotFitSacIsRefusedByName) {
  const auto problems = [](const std::string& text) {
    return FindProblems(Parse("env { id: \"Pendulum-v1\" } " + text));
  };
  EXPECT_THAT(problems("sac {}"), IsEmpty());
  for (const auto& [text, path] :
       {std::pair("sac {} model { recurrent: LSTM }", "model.recurrent"),
        {"sac {} model { normalize_observations: true }",
         "model.normalize_observations"},
        {"sac {} model { normalize_rewards: true }", "model.normalize_rewards"},
        {"sac {} model { torchscript: \"net.pt\" }", "model.torchscript"},
        {"sac { replay_capacity: 255 }", "sac.replay_capacity"},
        {"sac { replay_capacity: 2000000001 }", "sac.replay_capacity"},
        {"sac { tau: 0 }", "sac.tau"}}) {
    const std::vector<ConfigProblem> found = problems(text);
    ASSERT_THAT(found, SizeIs(1)) << text;
    EXPECT_EQ(found[0].path, path);
  }
}

// What is out of its range is refused for that alone, and divided by nowhere.
TEST(AlgorithmRowsTest, SegmentsOfNothingAreOneProblem) {
  for (const std::string nothing :
       {"ppo { minibatch: SEGMENTS minibatches: 0 }",
        "ppo { minibatch: SEGMENTS } env { num_envs: 0 }"}) {
    EXPECT_THAT(FindProblems(Parse(nothing)), SizeIs(1)) << nothing;
  }
}

TEST(AlgorithmRowsTest, PolicyAndValueAreApartUnlessTold) {
  const auto trunks = [](const std::string& text, bool may_split) {
    const v1::RunConfig config = Parse(text);
    return TraitsOf(config).Trunks(config, may_split);
  };
  for (const std::string name : {"ppo {}", "impala {}"}) {
    EXPECT_EQ(trunks(name, true), 2);
    EXPECT_EQ(trunks(name, false), 1);
    EXPECT_EQ(trunks(name + " model { share_trunk: true }", true), 1);
  }
  EXPECT_EQ(trunks("dqn {}", true), 1);
  EXPECT_EQ(trunks("sac {}", true), 5);
}

}  // namespace
}  // namespace flotilla
