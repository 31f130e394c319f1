#include "learner/kernels/mlp_shape.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace flotilla {
namespace {

using testing::ElementsAre;

std::vector<std::string> Names(const std::vector<ParameterBlock>& layout) {
  std::vector<std::string> names;
  for (const ParameterBlock& block : layout) names.push_back(block.name);
  return names;
}

TEST(MlpShapeTest, CartPoleAgentHasCleanRlsParameters) {
  const MlpShape shape = {4, {64, 64}, Activation::kTanh, false, 2, false};
  EXPECT_EQ(ParameterCount(shape), 9155);
  EXPECT_THAT(Names(ParameterLayout(shape)),
              ElementsAre("critic.0.weight", "critic.0.bias", "critic.2.weight",
                          "critic.2.bias", "critic.4.weight", "critic.4.bias",
                          "actor.0.weight", "actor.0.bias", "actor.2.weight",
                          "actor.2.bias", "actor.4.weight", "actor.4.bias"));
}

TEST(MlpShapeTest, BlocksLieEndToEnd) {
  const MlpShape shape = {3, {17, 5}, Activation::kRelu, true, 2, true};
  int64_t end = 0;
  for (const ParameterBlock& block : ParameterLayout(shape)) {
    EXPECT_EQ(block.offset, end) << block.name;
    end += block.size();
  }
  EXPECT_EQ(end, ParameterCount(shape));
}

TEST(MlpShapeTest, LogStdComesFirstAndWeightsAreOutByIn) {
  const MlpShape shape = {3, {17}, Activation::kTanh, true, 2, true};
  const std::vector<ParameterBlock> layout = ParameterLayout(shape);
  EXPECT_THAT(Names(layout),
              ElementsAre("actor_logstd", "trunk.0.weight", "trunk.0.bias",
                          "policy.weight", "policy.bias", "value.weight",
                          "value.bias"));
  EXPECT_THAT(layout[0].shape, ElementsAre(2));
  EXPECT_THAT(layout[1].shape, ElementsAre(17, 3));
  EXPECT_THAT(layout[3].shape, ElementsAre(2, 17));
  EXPECT_THAT(layout[6].shape, ElementsAre(1));
}

TEST(MlpShapeTest, ContinuousActorIsNamedByItsMean) {
  const MlpShape shape = {3, {17}, Activation::kTanh, false, 2, true};
  EXPECT_THAT(Names(ParameterLayout(shape)),
              ElementsAre("actor_logstd", "critic.0.weight", "critic.0.bias",
                          "critic.2.weight", "critic.2.bias",
                          "actor_mean.0.weight", "actor_mean.0.bias",
                          "actor_mean.2.weight", "actor_mean.2.bias"));
}

TEST(MlpShapeTest, SoftActorCriticsAreNamedAsItsNetworks) {
  MlpShape shape = {.observations = 3, .hidden = {17}, .actions = 2};
  shape.output = MlpOutput::kSquashedGaussian;
  EXPECT_THAT(Names(ParameterLayout(shape)),
              ElementsAre("actor.0.weight", "actor.0.bias", "actor_mean.weight",
                          "actor_mean.bias", "actor_logstd.weight",
                          "actor_logstd.bias"));
  shape.observations = 5;
  shape.actions = 1;
  shape.output = MlpOutput::kTwinCritics;
  const std::vector<ParameterBlock> layout = ParameterLayout(shape);
  EXPECT_THAT(Names(layout), ElementsAre("critic1.0.weight", "critic1.0.bias",
                                         "critic1_q.weight", "critic1_q.bias",
                                         "critic2.0.weight", "critic2.0.bias",
                                         "critic2_q.weight", "critic2_q.bias"));
  EXPECT_THAT(layout[0].shape, ElementsAre(17, 5));
  EXPECT_THAT(layout[2].shape, ElementsAre(1, 17));
}

}  // namespace
}  // namespace flotilla
