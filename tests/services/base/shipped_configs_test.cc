#include <cstdlib>
#include <filesystem>

#include "gtest/gtest.h"
#include "services/base/config.h"

namespace flotilla {
namespace {

std::string ConfigFolder() {
  const char* source = std::getenv("FLOTILLA_SOURCE");
  const std::filesystem::path root = source != nullptr
                                         ? std::filesystem::path(source)
                                         : std::filesystem::path(__FILE__)
                                               .parent_path()  // base
                                               .parent_path()  // services
                                               .parent_path()  // tests
                                               .parent_path();
  return root / "deploy/configs";
}

TEST(ShippedConfigsTest, EveryOneIsValid) {
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(ConfigFolder())) {
    const auto config = LoadValidRunConfig(entry.path(), {});
    EXPECT_TRUE(config.ok()) << config.status();
    // Nobody has to ask for checkpoints.
    EXPECT_EQ(Resolved(*config).checkpoint().every_seconds(), 60);
    ++count;
  }
  EXPECT_GE(count, 6);
}

TEST(ShippedConfigsTest, CartPolePpoHasTheNumbersOfCleanRl) {
  const auto config = LoadRunConfig(ConfigFolder() + "/cartpole_ppo.textproto",
                                    {"evaluation.stop_return=475"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(Validate(*config), absl::OkStatus());
  EXPECT_EQ(config->total_env_steps(), 500000);
  EXPECT_EQ(config->env().num_envs() * config->rollout().length(), 512);
  EXPECT_EQ(config->ppo().epochs(), 4);
  EXPECT_EQ(config->ppo().minibatches(), 4);
  EXPECT_DOUBLE_EQ(config->optimizer().learning_rate(), 2.5e-4);
  EXPECT_EQ(config->optimizer().schedule(), v1::LINEAR);
}

TEST(ShippedConfigsTest, PointNavHasTheNumbersOfDdPpo) {
  const auto config =
      LoadRunConfig(ConfigFolder() + "/pointnav_ddppo.textproto", {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->env().num_envs(), 4);
  EXPECT_EQ(config->rollout().length(), 128);
  EXPECT_EQ(config->ppo().epochs(), 2);
  EXPECT_EQ(config->ppo().minibatches(), 2);
  EXPECT_FALSE(config->ppo().normalize_advantages());
  EXPECT_DOUBLE_EQ(config->optimizer().learning_rate(), 2.5e-4);
  EXPECT_EQ(config->optimizer().schedule(), v1::CONSTANT);
  EXPECT_DOUBLE_EQ(config->optimizer().max_grad_norm(), 0.2);
  EXPECT_EQ(config->model().recurrent(), v1::LSTM);
  EXPECT_EQ(config->model().recurrent_layers(), 2);
  EXPECT_DOUBLE_EQ(config->distributed().preemption_fraction(), 0.6);
  EXPECT_DOUBLE_EQ(config->distributed().preemption_min_rollout(), 0.25);
  EXPECT_EQ(config->distributed().gradient_mean(), v1::BY_RANKS);
}

TEST(ShippedConfigsTest, PongDqnHasTheNumbersOfDiEngine) {
  const auto config = LoadRunConfig(ConfigFolder() + "/pong_dqn.textproto", {});
  ASSERT_TRUE(config.ok()) << config.status();
  const v1::DqnConfig& dqn = config->dqn();
  EXPECT_EQ(config->total_env_steps(), 3000000);
  EXPECT_EQ(config->env().num_envs() * config->rollout().length(), 96);
  EXPECT_EQ(dqn.updates_per_rollout() * config->evaluation().every_updates(),
            4000);
  EXPECT_EQ(dqn.batch_size(), 32);
  EXPECT_EQ(dqn.n_step(), 3);
  EXPECT_EQ(dqn.target_update_every(), 500);
  EXPECT_EQ(dqn.replay_capacity(), 100000);
  EXPECT_DOUBLE_EQ(config->optimizer().learning_rate(), 1e-4);
  EXPECT_DOUBLE_EQ(config->optimizer().epsilon(), 1e-8);
  EXPECT_EQ(config->optimizer().schedule(), v1::CONSTANT);
  EXPECT_EQ(config->optimizer().max_grad_norm(), 0);
  EXPECT_EQ(config->evaluation().stop_return(), 20);
}

}  // namespace
}  // namespace flotilla
