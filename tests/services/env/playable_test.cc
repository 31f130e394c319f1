#include "services/env/playable.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/config.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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

v1::RunConfig Config(const std::string& text) {
  v1::RunConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config))
      << text;
  return config;
}

auto Refused(const std::string& words) {
  // Who asks names the environment.
  return StatusIs(absl::StatusCode::kInvalidArgument,
                  AllOf(HasSubstr(words), Not(HasSubstr("env \""))));
}

TEST(PlayableTest, EveryKindOfActionIsPlayedByWhatTakesIt) {
  const v1::RunConfig ppo = Config("ppo {}"), dqn = Config("dqn {}"),
                      impala = Config("impala {}");
  const v1::EnvSpec one = Spec(v1::FLOAT32, {3});
  v1::EnvSpec two = one;
  *two.add_action() = two.action(0);
  two.mutable_action(1)->set_path("b");
  v1::EnvSpec multi = one;
  multi.mutable_action(0)->add_shape(2);
  multi.mutable_action(0)->add_num_values_each(2);
  multi.mutable_action(0)->add_num_values_each(3);
  v1::EnvSpec binary = one;
  binary.mutable_action(0)->set_dtype(v1::UINT8);
  binary.mutable_action(0)->add_shape(5);
  binary.mutable_action(0)->set_num_values(2);
  for (const v1::RunConfig& config : {ppo, dqn, impala}) {
    for (const v1::EnvSpec& spec : {one, two, multi, binary}) {
      EXPECT_OK(CheckPlayable(config, spec)) << spec.DebugString();
    }
  }

  v1::EnvSpec continuous = one;
  continuous.mutable_action(0)->set_dtype(v1::FLOAT32);
  continuous.mutable_action(0)->set_num_values(0);
  v1::EnvSpec mixed = two;
  mixed.mutable_action(1)->set_dtype(v1::FLOAT32);
  mixed.mutable_action(1)->set_num_values(0);
  for (const v1::EnvSpec& spec : {continuous, mixed}) {
    EXPECT_OK(CheckPlayable(ppo, spec));
    EXPECT_OK(CheckPlayable(impala, spec));
    const std::string are =
        spec.action_size() > 1 ? "partly continuous" : "continuous";
    EXPECT_THAT(CheckPlayable(dqn, spec),
                Refused("dqn needs discrete actions, and this environment's "
                        "are " +
                        are + "; choose ppo"));
  }
}

TEST(PlayableTest, SpacesThatNoNetworkFitsSayWhatWould) {
  const v1::RunConfig ppo = Config("ppo {}");
  v1::EnvSpec numbers = Spec(v1::FLOAT32, {3});
  numbers.mutable_action(0)->set_num_values(0);
  EXPECT_THAT(CheckPlayable(ppo, numbers),
              Refused("its action (INT64 []) is neither discrete values "
                      "(num_values) nor a FLOAT32 array"));
  EXPECT_THAT(CheckPlayable(ppo, Spec(v1::FLOAT32, {1 << 20, 1 << 20})),
              Refused("spec.observation[0]"));
  v1::EnvSpec many = Spec(v1::INT64, {});
  many.mutable_observation(0)->set_num_values(5000);
  EXPECT_THAT(CheckPlayable(ppo, many), Refused("has 5000 values, too many"));
  EXPECT_THAT(
      CheckPlayable(Config("ppo {} model { leaf { path: 'x' } }"),
                    Spec(v1::FLOAT32, {3})),
      Refused("model.leaf names \"x\", which is no leaf of its observation"));
  v1::EnvSpec masked = Spec(v1::FLOAT32, {3});
  masked.set_action_mask_path("mask");
  EXPECT_THAT(CheckPlayable(ppo, masked),
              Refused("names \"mask\" as its mask"));
}

// A remedy that is named has to be one.
TEST(PlayableTest, TheRemedyForTooManyValuesIsTaken) {
  v1::EnvSpec many = Spec(v1::INT64, {});
  many.mutable_observation(0)->set_num_values(5000);
  EXPECT_THAT(CheckPlayable(Config("ppo {}"), many),
              Refused("--set 'model.leaf={path: \"\" encoder: EMBEDDING "
                      "hidden: [64]}'"));
  EXPECT_OK(CheckPlayable(Config("ppo {} model { leaf { path: '' encoder: "
                                 "EMBEDDING hidden: [64] } }"),
                          many));
}

TEST(PlayableTest, TheEncoderFitsWhatIsObserved) {
  v1::RunConfig config = Config("ppo {}");
  const v1::EnvSpec vector = Spec(v1::FLOAT32, {3});
  const v1::EnvSpec frames = Spec(v1::UINT8, {84, 84});
  EXPECT_OK(CheckPlayable(config, vector));
  EXPECT_OK(CheckPlayable(config, frames));
  config.mutable_model()->set_encoder(v1::MLP);
  EXPECT_OK(CheckPlayable(config, vector));
  EXPECT_OK(CheckPlayable(config, frames));
  config.mutable_model()->set_encoder(v1::NATURE_CNN);
  EXPECT_OK(CheckPlayable(config, frames));
  EXPECT_THAT(CheckPlayable(config, Spec(v1::UINT8, {20, 20})),
              Refused("the observation: frames of 20 x 20 are too small for "
                      "NATURE_CNN"));
  EXPECT_THAT(CheckPlayable(config, vector),
              Refused("does not fit a vector; use MLP"));
}

// The only one; "" if there is none.
std::string PlayableWarning(const v1::RunConfig& config,
                            const v1::EnvSpec& spec, bool on_gpu = false) {
  const std::vector<std::string> warnings =
      PlayableWarnings(config, spec, on_gpu);
  EXPECT_LE(warnings.size(), 1);
  return warnings.empty() ? "" : warnings[0];
}

TEST(PlayableTest, ASmallNetworkOnAGpuThatNobodyNamedIsWarnedOf) {
  const v1::EnvSpec numbers = Spec(v1::FLOAT32, {4});
  const v1::EnvSpec frames = Spec(v1::UINT8, {84, 84});
  const v1::RunConfig few =
      Resolved(Config("ppo {} env { id: 'Test' num_envs: 16 num_workers: 2 "
                      "groups: 2 }"));
  EXPECT_THAT(PlayableWarning(few, numbers, /*on_gpu=*/true),
              AllOf(HasSubstr("for 4 rows at a time"),
                    HasSubstr("--set runtime.device=cpu")));
  EXPECT_EQ(PlayableWarning(few, numbers, /*on_gpu=*/false), "");
  EXPECT_EQ(PlayableWarning(few, frames, /*on_gpu=*/true), "");
  for (const char* text :
       {"ppo {} env { num_envs: 16 } runtime { device: 'cuda' }",
        "ppo {} env { num_envs: 17 groups: 1 }",
        "ppo {} env { num_envs: 16 } model { hidden: [64, 512] }",
        "ppo {} env { num_envs: 16 } model { recurrent: LSTM }",
        "ppo {} env { num_envs: 16 } model { plugin: 'net.so' }",
        "dqn {} env { num_envs: 16 }"}) {
    EXPECT_EQ(PlayableWarning(Resolved(Config(text)), numbers, true), "")
        << text;
  }
}

TEST(PlayableTest, APrecisionThatNothingIsComputedInIsWarnedOf) {
  const v1::EnvSpec numbers = Spec(v1::FLOAT32, {4});
  const v1::EnvSpec frames = Spec(v1::UINT8, {84, 84});
  const std::string bf16 = " runtime { precision: BF16 device: 'cuda' }";
  const auto warned = HasSubstr("nothing of this network is computed in it");
  for (const char* text :
       {"ppo {}", "dqn {} model { encoder: MLP }",
        "sac {} model { encoder: MLP }", "impala {} model { recurrent: LSTM }",
        "ppo {} model { encoder: MLP recurrent: GRU }",
        "ppo {} model { encoder: MLP leaf { path: '' frame_stack: 4 } }"}) {
    EXPECT_THAT(PlayableWarning(Config(text + bf16), numbers), warned) << text;
  }
  const std::string mlp = "ppo {} model { encoder: MLP }";
  EXPECT_THAT(PlayableWarning(Config(mlp + bf16), numbers, /*on_gpu=*/true),
              warned);
  EXPECT_EQ(PlayableWarning(Config(mlp + bf16), numbers), "");
  for (const char* text : {"dqn {}", "impala {} model { plugin: 'net.so' }",
                           "sac {}", "ppo {} optimizer { type: MUON }"}) {
    EXPECT_EQ(PlayableWarning(Config(text + bf16), frames), "") << text;
  }
  EXPECT_EQ(PlayableWarning(Config("ppo {} optimizer { type: MUON }" + bf16),
                            numbers),
            "");
  EXPECT_EQ(PlayableWarning(Config("dqn {}"), numbers), "");
}

TEST(PlayableTest, WidthsThatAnImagesEncoderDoesNotTakeAreWarnedOf) {
  const v1::EnvSpec frames = Spec(v1::UINT8, {84, 84});
  EXPECT_THAT(
      PlayableWarning(Config("ppo {} model { hidden: [256, 128] }"), frames),
      HasSubstr("model.hidden is [256, 128], and NATURE_CNN takes one width, "
                "of its last linear layer: 128"));
  EXPECT_EQ(PlayableWarning(Config("ppo {} model { hidden: 256 }"), frames),
            "");
  EXPECT_EQ(PlayableWarning(Config("ppo {} model { hidden: [256, 128] }"),
                            Spec(v1::FLOAT32, {4})),
            "");
}

TEST(PlayableTest, APrecisionThatTorchScriptDoesNotTakeIsWarnedOf) {
  const v1::EnvSpec frames = Spec(v1::UINT8, {84, 84});
  const char* saved = "ppo {} model { torchscript: 'net.pt' } runtime {";
  EXPECT_THAT(
      PlayableWarning(Config(absl::StrCat(saved, "precision: BF16 }")), frames),
      HasSubstr("runtime.precision is BF16, and model.torchscript"));
  EXPECT_EQ(
      PlayableWarning(Config(absl::StrCat(saved, "precision: FP32 }")), frames),
      "");
  EXPECT_EQ(
      PlayableWarning(Config("ppo {} runtime { precision: BF16 }"), frames),
      "");
}

TEST(PlayableTest, AnImageThatIsSeenAsAVectorIsWarnedOf) {
  const v1::RunConfig plain = Config("ppo {}");
  const v1::RunConfig mlp = Config("ppo {} model { encoder: MLP }");
  EXPECT_EQ(PlayableWarning(plain, Spec(v1::UINT8, {84, 84})), "");
  EXPECT_EQ(PlayableWarning(plain, Spec(v1::UINT8, {84, 84, 3})), "");
  EXPECT_EQ(PlayableWarning(plain, Spec(v1::UINT8, {128})), "");
  EXPECT_EQ(PlayableWarning(plain, Spec(v1::UINT8, {3, 5, 17})), "");  // 255
  EXPECT_EQ(PlayableWarning(plain, Spec(v1::FLOAT32, {64, 64})), "");
  EXPECT_EQ(PlayableWarning(mlp, Spec(v1::FLOAT32, {64, 64, 3})), "");
  const v1::EnvSpec small = Spec(v1::UINT8, {16, 16, 3});
  EXPECT_THAT(
      PlayableWarning(plain, small),
      AllOf(HasSubstr("env \"Test\": the observation is UINT8 [16, 16, 3]"),
            HasSubstr("768 values go into an MLP"),
            HasSubstr("--set 'model.leaf={path: \"\" encoder: RESNET}'")));
  EXPECT_THAT(PlayableWarning(mlp, Spec(v1::UINT8, {84, 84})),
              HasSubstr("7056 values"));
  // Who says MLP of the leaf itself means it.
  EXPECT_EQ(
      PlayableWarning(Config("ppo {} model { leaf { path: '' encoder: MLP } }"),
                      small),
      "");
  // What it advises is taken, and silences it.
  const v1::RunConfig advised =
      Config("ppo {} model { leaf { path: '' encoder: RESNET } }");
  EXPECT_OK(CheckPlayable(advised, small));
  EXPECT_EQ(PlayableWarning(advised, small), "");
  // Beside another leaf too; values that are counted are no pixels.
  v1::EnvSpec two = small;
  two.mutable_observation(0)->set_path("rgb");
  *two.add_observation() = two.observation(0);
  two.mutable_observation(1)->set_path("state");
  two.mutable_observation(1)->set_num_values(2);
  EXPECT_THAT(PlayableWarning(plain, two),
              AllOf(HasSubstr("the observation \"rgb\" is"),
                    HasSubstr("path: \"rgb\" encoder: RESNET")));
  two.mutable_observation(0)->set_num_values(2);
  EXPECT_EQ(PlayableWarning(plain, two), "");
  // What cannot be played is refused, not warned of.
  two.clear_action();
  EXPECT_EQ(PlayableWarning(plain, two), "");
}

TEST(PlayableTest, NumbersThatAreNotNormalizedAreWarnedOf) {
  const std::string on = "ppo {} model { normalize_observations: true ";
  v1::EnvSpec spec = Spec(v1::FLOAT32, {3});
  spec.mutable_observation(0)->set_path("state");
  v1::Leaf* goal = spec.add_observation();
  *goal = spec.observation(0);
  goal->set_path("goal");
  EXPECT_EQ(PlayableWarning(Config(on + "}"), spec), "");
  const std::string own = "leaf { path: 'goal' hidden: [8] } ";
  EXPECT_EQ(PlayableWarning(Config("ppo {} model {" + own + "}"), spec), "");
  EXPECT_THAT(PlayableWarning(Config(on + own + "}"), spec),
              AllOf(HasSubstr("env \"Test\": model.normalize_observations "
                              "scales observation \"state\" alone"),
                    HasSubstr("; observation \"goal\" goes in as sent")));
  // Earlier selves are scaled as the newest.
  EXPECT_THAT(PlayableWarning(Config(on + "} selfplay {}"), spec),
              HasSubstr("earlier selves (selfplay)"));
  // Values that are counted are no numbers, and bytes of an image not meant.
  spec.mutable_observation(1)->set_dtype(v1::INT64);
  spec.mutable_observation(1)->set_num_values(5);
  EXPECT_EQ(PlayableWarning(Config(on + own + "}"), spec), "");
  EXPECT_THAT(PlayableWarning(Config(on + "}"), Spec(v1::UINT8, {84, 84})),
              HasSubstr("scales nothing of its observation; leave it out"));
  // Nor are several frames of a vector scaled.
  EXPECT_THAT(
      PlayableWarning(Config(on + "leaf { path: '' frame_stack: 4 } }"),
                      Spec(v1::FLOAT32, {3})),
      HasSubstr("scales nothing of its observation; the observation goes in"));
}

TEST(PlayableTest, SacNeedsBoundsBeforeAnythingIsStarted) {
  const v1::RunConfig sac = Config("sac {}");
  v1::EnvSpec spec = Spec(v1::FLOAT32, {3});
  v1::Leaf* action = spec.mutable_action(0);
  EXPECT_THAT(CheckPlayable(sac, spec),
              Refused("sac needs continuous actions, and this environment's "
                      "are discrete; choose ppo"));
  action->Clear();
  action->set_dtype(v1::FLOAT32);
  action->add_shape(2);
  EXPECT_THAT(CheckPlayable(sac, spec),
              Refused("sac needs actions with finite bounds, and value 0 of "
                      "this environment's is from -inf to inf; choose ppo"));
  action->add_low(-1);
  for (const float high : {1.0f, 2.0f}) action->add_high(high);
  EXPECT_OK(CheckPlayable(sac, spec));
  action->set_high(1, -1);
  EXPECT_THAT(
      CheckPlayable(sac, spec),
      Refused("value 1 of this environment's is always -1; choose ppo"));
  EXPECT_OK(CheckPlayable(Config("ppo {}"), spec));
}

TEST(PlayableTest, SlotsMakeWholeEnvironmentsInEveryGroup) {
  v1::EnvSpec spec = Spec(v1::FLOAT32, {3});
  const std::string env =
      "ppo {} env { num_workers: 2 groups: 2 num_envs: 12 } ";
  EXPECT_OK(CheckPlayable(Config(env), spec));
  EXPECT_THAT(CheckPlayable(Config(env + "selfplay {}"), spec),
              Refused("selfplay is set, and the environment has one agent"));
  spec.set_agents(2);
  EXPECT_THAT(CheckPlayable(Config(env), spec),
              Refused("env.num_envs is 12 with env.num_workers 2 and "
                      "env.groups 2, and the environment has 2 agents: use 8 "
                      "or 16"));
  EXPECT_OK(CheckPlayable(
      Config(
          "ppo {} env { num_workers: 2 groups: 2 num_envs: 16 } selfplay {}"),
      spec));
  // Minibatches are of what is learned from: 7 steps of 8 rows.
  EXPECT_THAT(
      CheckPlayable(Config("ppo { minibatches: 16 } rollout { length: 7 } "
                           "env { num_workers: 2 groups: 2 num_envs: 16 } "
                           "selfplay {}"),
                    spec),
      Refused("Of env.num_envs = 16 slots, selfplay's opponents play 8"));
  EXPECT_THAT(
      CheckPlayable(Config(env + "selfplay { opponent_slots: 2 }"), spec),
      Refused("selfplay.opponent_slots is 2, and the environment has 2 agents, "
              "one of whom has to learn: use at most 1"));
  spec.set_agents(-2);
  EXPECT_THAT(CheckPlayable(Config(env), spec),
              Refused("spec.agents is -2, want 1 to 1024"));
}

}  // namespace
}  // namespace flotilla
