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

}  // namespace
}  // namespace flotilla
