#include "services/base/config_override.h"

#include <google/protobuf/text_format.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/config.h"

namespace flotilla {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Of an override of the configuration `text`.
std::string Refusal(const std::string& text, const std::string& override_text) {
  v1::RunConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  const absl::Status status = ApplyOverride(override_text, &config);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << override_text;
  return std::string(status.message());
}

TEST(ConfigOverrideTest, AHintKnowsTheNamesOfOthers) {
  const std::pair<const char*, const char*> of_ppo[] = {
      {"gamma", "ppo.discount"},
      {"ppo.gamma", "ppo.discount"},
      {"clip_coef", "ppo.clip_ratio"},
      {"ppo.clip_range", "ppo.clip_ratio"},
      {"ent_coef", "ppo.entropy_cost"},
      {"vf_coef", "ppo.value_cost"},
      {"num_steps", "rollout.length"},
      {"n_steps", "rollout.length"},
      {"update_epochs", "ppo.epochs"},
      {"n_epochs", "ppo.epochs"},
      {"num_minibatches", "ppo.minibatches"},
      {"norm_adv", "ppo.normalize_advantages"},
      {"ppo.lr", "optimizer.learning_rate"},
      {"n_envs", "env.num_envs"},
  };
  for (const auto& [typed, meant] : of_ppo) {
    EXPECT_THAT(Refusal("ppo {}", absl::StrCat(typed, "=1")),
                HasSubstr(absl::StrCat("did you mean \"", meant, "\"?")))
        << typed;
  }
  EXPECT_THAT(Refusal("impala {}", "gamma=1"),
              HasSubstr("did you mean \"impala.discount\"?"));
  EXPECT_THAT(Refusal("dqn {}", "dqn.buffer_size=1"),
              HasSubstr("did you mean \"dqn.replay_capacity\"?"));
  EXPECT_THAT(Refusal("dqn {}", "n_steps=1"),
              HasSubstr("did you mean \"dqn.n_step\" or \"rollout.length\"?"));
  EXPECT_THAT(Refusal("sac {}", "q_lr=1"),
              HasSubstr("did you mean \"sac.critic_learning_rate\"?"));
}

TEST(ConfigOverrideTest, AHintSaysWhatABatchIsMadeOf) {
  for (const char* typed :
       {"batch_size=1", "ppo.batch_size=1", "minibatch_size=1"}) {
    EXPECT_THAT(Refusal("ppo {}", typed),
                HasSubstr("a minibatch has rollout.length * env.num_envs / "
                          "ppo.minibatches steps"));
  }
  EXPECT_THAT(Refusal("sac {}", "batch_size=1"),
              HasSubstr("did you mean \"sac.batch_size\"?"));
}

TEST(ConfigOverrideTest, AHintLooksInOtherAlgorithmsLast) {
  EXPECT_THAT(Refusal("ppo {}", "replay_capacity=1"),
              HasSubstr("did you mean \"dqn.replay_capacity\" or "
                        "\"sac.replay_capacity\"?"));
  EXPECT_THAT(Refusal("", "batch_size=1"),
              HasSubstr("did you mean \"dqn.batch_size\" or "
                        "\"sac.batch_size\"?"));
  EXPECT_THAT(Refusal("ppo {}", "zebra=1"), Not(HasSubstr("did you mean")));
}

}  // namespace
}  // namespace flotilla
