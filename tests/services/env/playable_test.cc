#include "services/env/playable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::HasSubstr;

v1::EnvSpec Spec(v1::DType dtype, const std::vector<int64_t>& shape) {
  v1::EnvSpec spec;
  spec.set_env_id("Test");
  v1::Leaf* leaf = spec.add_observation();
  leaf->set_dtype(dtype);
  for (int64_t dim : shape) leaf->add_shape(dim);
  leaf = spec.add_action();
  leaf->set_dtype(v1::INT64);
  leaf->set_num_values(4);
  return spec;
}

TEST(PlayableTest, SpacesThatNoNetworkFitsSayWhatWould) {
  v1::RunConfig ppo, dqn;
  ppo.mutable_ppo();
  dqn.mutable_dqn();
  const v1::EnvSpec good = Spec(v1::FLOAT32, {3});
  EXPECT_OK(CheckPlayable(ppo, good));
  EXPECT_OK(CheckPlayable(dqn, good));

  v1::EnvSpec two = good;
  *two.add_action() = two.action(0);
  two.mutable_action(1)->set_path("b");
  EXPECT_THAT(CheckPlayable(ppo, two),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("2 action leaves"), HasSubstr("Wrap"))));
  v1::EnvSpec multi = good;
  multi.mutable_action(0)->add_shape(2);
  EXPECT_THAT(
      CheckPlayable(ppo, multi),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("INT64 [2]"), HasSubstr("Discrete, or a Box"))));
  v1::EnvSpec continuous = good;
  continuous.mutable_action(0)->set_dtype(v1::FLOAT32);
  continuous.mutable_action(0)->set_num_values(0);
  EXPECT_OK(CheckPlayable(ppo, continuous));
  EXPECT_THAT(CheckPlayable(dqn, continuous),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("dqn needs discrete actions")));
  EXPECT_THAT(CheckPlayable(ppo, Spec(v1::FLOAT32, {1 << 20, 1 << 20})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("spec.observation[0]")));
}

TEST(PlayableTest, TheEncoderFitsWhatIsObserved) {
  v1::RunConfig config;
  config.mutable_ppo();
  const v1::EnvSpec vector = Spec(v1::FLOAT32, {3});
  const v1::EnvSpec frames = Spec(v1::UINT8, {84, 84});
  EXPECT_OK(CheckPlayable(config, vector));
  EXPECT_OK(CheckPlayable(config, frames));
  config.mutable_model()->set_encoder(v1::MLP);
  EXPECT_OK(CheckPlayable(config, vector));
  EXPECT_THAT(CheckPlayable(config, frames),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("model.encoder MLP does not fit its frames")));
  config.mutable_model()->set_encoder(v1::NATURE_CNN);
  EXPECT_OK(CheckPlayable(config, frames));
  EXPECT_THAT(CheckPlayable(config, vector),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("does not fit its vector; use MLP")));
}

TEST(PlayableTest, AnImageThatIsSeenAsAVectorIsWarnedOf) {
  EXPECT_EQ(PlayableWarning(Spec(v1::UINT8, {84, 84})), "");
  EXPECT_EQ(PlayableWarning(Spec(v1::UINT8, {128})), "");
  EXPECT_EQ(PlayableWarning(Spec(v1::FLOAT32, {64, 64, 3})), "");
  EXPECT_THAT(PlayableWarning(Spec(v1::UINT8, {64, 64, 3})),
              AllOf(HasSubstr("UINT8 [64, 64, 3]"), HasSubstr("12288 values"),
                    HasSubstr("GrayscaleObservation")));
  // Beside another leaf even [H, W] is.
  v1::EnvSpec two = Spec(v1::UINT8, {84, 84});
  two.mutable_observation(0)->set_path("rgb");
  *two.add_observation() = two.observation(0);
  two.mutable_observation(1)->set_path("state");
  EXPECT_THAT(PlayableWarning(two),
              HasSubstr("observation \"rgb\" is an image"));
}

}  // namespace
}  // namespace flotilla
