#include "services/base/config_available.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/config.h"

namespace flotilla {
namespace {

v1::RunConfig With(const std::string& text) {
  v1::RunConfig config;
  config.mutable_ppo();
  EXPECT_TRUE(ApplyOverride(text, &config).ok()) << text;
  return config;
}

TEST(ConfigAvailableTest, WhatShipsIsAvailable) {
  v1::RunConfig config;
  config.mutable_ppo();
  EXPECT_TRUE(CheckAvailable(config).ok());
  config.mutable_dqn();
  EXPECT_TRUE(CheckAvailable(config).ok());
}

TEST(ConfigAvailableTest, WhatWouldBeIgnoredIsRefusedByName) {
  for (const char* text : {"env.id=gym:Acrobot-v1"}) {
    const absl::Status status = CheckAvailable(With(text));
    const std::string field(text, std::string(text).find('='));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(field));
  }
}

}  // namespace
}  // namespace flotilla
