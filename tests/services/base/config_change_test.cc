#include "services/base/config_change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "services/base/config.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

v1::RunConfig Ppo() {
  v1::RunConfig config;
  config.mutable_ppo();
  return Resolved(config);
}

TEST(ConfigChangeTest, EveryChangeableFieldExists) {
  for (const std::string& path : ChangeableFields()) {
    const google::protobuf::Descriptor* type = v1::RunConfig::descriptor();
    const google::protobuf::FieldDescriptor* field = nullptr;
    size_t begin = 0;
    while (begin <= path.size()) {
      const size_t end = std::min(path.find('.', begin), path.size());
      ASSERT_NE(type, nullptr) << path;
      field = type->FindFieldByName(path.substr(begin, end - begin));
      ASSERT_NE(field, nullptr) << path;
      type = field->message_type();
      begin = end + 1;
    }
    EXPECT_TRUE(field->message_type() == nullptr || field->is_map()) << path;
    EXPECT_EQ(WhyFixed(path), "");
  }
}

TEST(ConfigChangeTest, AFixedFieldSaysWhatThereIsToDo) {
  EXPECT_THAT(
      WhyFixed("env.num_envs"),
      HasSubstr("`flotilla train --resume RUN --set env.num_envs=...`"));
  EXPECT_THAT(WhyFixed("model.hidden"), HasSubstr("start another"));
  EXPECT_EQ(WhyFixed("custom.options.entropy_cost"), "");
}

TEST(ConfigChangeTest, WhatIsWrongIsNamedWithoutTheConfiguration) {
  EXPECT_OK(CheckChange({"optimizer.learning_rate=1e-4", "dqn.huber=true"}));
  EXPECT_THAT(CheckChange({}), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("FIELD=VALUE")));
  EXPECT_THAT(CheckChange({"optimizer.learning_rat=1"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("optimizer.learning_rate")));
  EXPECT_THAT(CheckChange({"optimizer.learning_rate=fast"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected a number, got \"fast\"")));
  EXPECT_THAT(CheckChange({"optimizer.learning_rate=-1"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("optimizer.learning_rate is -1")));
  EXPECT_THAT(CheckChange({"ppo.epochs=2", "ppo.minibatches=2"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("ppo.minibatches cannot change in flight")));
}

TEST(ConfigChangeTest, AChangeIsMadeWholeOrNotAtAll) {
  const v1::RunConfig before = Ppo();
  const auto after =
      Changed(before, {"optimizer.learning_rate=1e-4", "ppo.epochs=2"});
  ASSERT_OK(after.status());
  EXPECT_EQ(after->optimizer().learning_rate(), 1e-4);
  EXPECT_EQ(after->ppo().epochs(), 2);
  EXPECT_TRUE(ChangesLearning(before, *after));
  EXPECT_THAT(Changed(before, {"ppo.epochs=2", "dqn.huber=true"}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("dqn")));
  const absl::Status refused =
      Changed(before, {"custom.options.x=" + std::string(990, 'y')}).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kInvalidArgument,
                                AllOf(StartsWith("custom.options.x=yyy"),
                                      HasSubstr("is ppo, not custom"))));
  EXPECT_LT(refused.message().size(), 512u);
  const auto beside = Changed(before, {"checkpoint.every_seconds=5"});
  ASSERT_OK(beside.status());
  EXPECT_FALSE(ChangesLearning(before, *beside));
}

TEST(ConfigChangeTest, WhatIsUsedInsteadOfAnotherTakesItsPlace) {
  const auto by_updates = Changed(Ppo(), {"total_updates=10"});
  ASSERT_OK(by_updates.status());
  EXPECT_EQ(by_updates->total_updates(), 10);
  EXPECT_FALSE(by_updates->has_total_env_steps());
  const auto by_steps = Changed(*by_updates, {"total_env_steps=7"});
  ASSERT_OK(by_steps.status());
  EXPECT_EQ(by_steps->total_env_steps(), 7);
  EXPECT_FALSE(by_steps->has_total_updates());
  v1::RunConfig counted = Ppo();
  counted.mutable_checkpoint()->clear_every_updates();
  counted.mutable_checkpoint()->clear_every_seconds();
  counted.mutable_checkpoint()->set_count(3);
  const auto timed = Changed(counted, {"checkpoint.every_seconds=5"});
  ASSERT_OK(timed.status());
  EXPECT_FALSE(timed->checkpoint().has_count());
}

TEST(ConfigChangeTest, WhatSeveralFieldsMakeWrongTogetherIsRefused) {
  EXPECT_THAT(
      Changed(Ppo(), {"total_updates=10", "total_env_steps=10"}).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("total_")));
  v1::RunConfig scaled = Ppo();
  scaled.mutable_model()->set_normalize_rewards(true);
  EXPECT_THAT(Changed(scaled, {"ppo.discount=0.9"}).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("ppo.discount cannot change in flight")));
  EXPECT_OK(Changed(Ppo(), {"ppo.discount=0.9"}).status());
}

TEST(ConfigChangeTest, VerdictsThatNobodyAwaitsCannotComeInFlight) {
  v1::RunConfig config = Ppo();
  config.mutable_evaluation()->set_every_updates(5);
  EXPECT_THAT(Changed(config, {"evaluation.stop_return=10"}).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("evaluation.stop_at_once")));
  v1::RunConfig at_once = config;
  at_once.mutable_evaluation()->set_stop_at_once(true);
  EXPECT_OK(Changed(at_once, {"evaluation.stop_return=10"}).status());
  config.mutable_evaluation()->set_stop_return(5);
  EXPECT_OK(Changed(config, {"evaluation.stop_return=10"}).status());
}

}  // namespace
}  // namespace flotilla
