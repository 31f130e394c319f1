#include "services/base/config.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/config_rules.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::google::protobuf::TextFormat;
using ::google::protobuf::util::MessageDifferencer;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

class ConfigTest : public testing::Test {
 protected:
  absl::StatusOr<v1::RunConfig> Load(
      const std::string& text, const std::vector<std::string>& overrides = {}) {
    WriteFile(path(), text);
    return LoadRunConfig(path(), overrides);
  }

  // The message of the error that `text` or an override is.
  std::string LoadError(const std::string& text,
                        const std::vector<std::string>& overrides = {}) {
    const auto config = Load(text, overrides);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
    return Message(config.status());
  }

  v1::RunConfig With(const std::string& override_text,
                     const std::string& text = "ppo {}") {
    auto config = Load(text, {override_text});
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? *config : v1::RunConfig();
  }

  std::string path() const { return folder_ / "run.textproto"; }

  TempDir folder_;
};

// ---- The file

TEST_F(ConfigTest, ReadsTheFile) {
  const auto config = Load("seed: 7  # lucky\nppo { epochs: 3 }\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->seed(), 7);
  EXPECT_EQ(config->ppo().epochs(), 3);
  EXPECT_EQ(config->ppo().minibatches(), 4);  // the default
}

TEST_F(ConfigTest, AMissingFileIsNotFoundAndNamed) {
  const auto config = LoadRunConfig("/no/such.textproto", {});
  EXPECT_EQ(config.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(config.status()), HasSubstr("/no/such.textproto"));
}

TEST_F(ConfigTest, AFolderIsRefused) {
  const auto config = LoadRunConfig(folder_.path(), {});
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(config.status()), HasSubstr("is a folder"));
}

TEST_F(ConfigTest, AnUnknownFieldNamesPlaceAndNearest) {
  EXPECT_EQ(LoadError("ppo {}\nenv {\n  num_env: 8\n}\n"),
            path() +
                ":3:3: env.num_env: there is no field \"num_env\"; did "
                "you mean \"num_envs\"?");
}

TEST_F(ConfigTest, AnUnknownFieldOfOthersIsNamedAsOurs) {
  EXPECT_THAT(LoadError("ppo {\n  gamma: 0.9\n}\n"),
              HasSubstr(":2:3: ppo.gamma: there is no field \"gamma\"; did you "
                        "mean \"ppo.discount\"?"));
  EXPECT_THAT(LoadError("ppo {}\nnum_steps: 8\n"),
              HasSubstr("did you mean \"rollout.length\"?"));
}

TEST_F(ConfigTest, AnUnknownFieldAtTheTopIsNamedToo) {
  EXPECT_THAT(LoadError("ppo {}\n\nsed: 1\n"),
              AllOf(StartsWith(path() + ":3:"), HasSubstr("\"sed\""),
                    HasSubstr("\"seed\"")));
}

TEST_F(ConfigTest, AWrongTypeNamesPlaceAndField) {
  EXPECT_EQ(LoadError("ppo {\n  epochs: \"many\"\n}\n"),
            path() + ":2:11: ppo.epochs: Expected integer, got: \"many\"");
}

TEST_F(ConfigTest, AnUnknownEnumValueListsTheKnownOnes) {
  EXPECT_EQ(LoadError("optimizer {\n  type: ADAMM\n}\n"),
            path() +
                ":2:9: optimizer.type: there is no value \"ADAMM\"; did "
                "you mean \"ADAM\"? (one of ADAM, RMSPROP, MUON)");
}

TEST_F(ConfigTest, ASyntaxErrorNamesThePlace) {
  EXPECT_THAT(LoadError("seed 1\n"), StartsWith(path() + ":1:6: seed: "));
  EXPECT_THAT(LoadError("ppo {\n  epochs: 3\n"), StartsWith(path() + ":3:1: "));
}

TEST_F(ConfigTest, TwoAlgorithmsAreRefused) {
  EXPECT_THAT(LoadError("ppo {}\ndqn {}\n"),
              AllOf(StartsWith(path() + ":2:"), HasSubstr("one algorithm")));
}

TEST_F(ConfigTest, AFieldGivenTwiceIsRefused) {
  EXPECT_THAT(LoadError("seed: 1\nseed: 2\n"),
              AllOf(StartsWith(path() + ":2:"), HasSubstr("multiple times")));
}

// ---- --set

TEST_F(ConfigTest, OverridesApplyInOrderAfterTheFile) {
  const auto config =
      Load("seed: 1 ppo {}", {"seed=2", "ppo.epochs=8", "seed=3"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->seed(), 3);
  EXPECT_EQ(config->ppo().epochs(), 8);
}

TEST_F(ConfigTest, IntegersTakeExponents) {
  EXPECT_EQ(With("total_env_steps=1e6").total_env_steps(), 1000000);
  EXPECT_EQ(With("seed=2.5e2").seed(), 250);
  EXPECT_EQ(With("seed=18446744073709551615").seed(), ~0ULL);
  EXPECT_EQ(With("env.num_envs=1e1").env().num_envs(), 10);
}

TEST_F(ConfigTest, NumbersThatDoNotFitAreRefused) {
  EXPECT_THAT(LoadError("ppo {}", {"ppo.epochs=1.5"}),
              HasSubstr("expected an integer, got \"1.5\""));
  EXPECT_THAT(LoadError("ppo {}", {"ppo.epochs=1e12"}),
              HasSubstr("2147483647"));
  EXPECT_THAT(LoadError("ppo {}", {"ppo.epochs="}), HasSubstr("an integer"));
  EXPECT_THAT(LoadError("ppo {}", {"seed=-1"}), HasSubstr("at least 0"));
  EXPECT_THAT(LoadError("ppo {}", {"ppo.discount=nan"}),
              HasSubstr("expected a number"));
  EXPECT_THAT(LoadError("ppo {}", {"ppo.discount=0.9x"}),
              HasSubstr("expected a number, got \"0.9x\""));
}

TEST_F(ConfigTest, StringsNeedNoQuotesAndMayHaveThem) {
  EXPECT_EQ(With("env.id=ALE/Pong-v5").env().id(), "ALE/Pong-v5");
  EXPECT_EQ(With("env.id=\"Maze\"").env().id(), "Maze");
}

TEST_F(ConfigTest, EnumsComeInAnyCaseWithOrWithoutTheirPrefix) {
  EXPECT_EQ(With("optimizer.type=muon").optimizer().type(), v1::MUON);
  EXPECT_EQ(With("distributed.backend=auto").distributed().backend(),
            v1::BACKEND_AUTO);
  EXPECT_EQ(With("distributed.backend=Gloo").distributed().backend(), v1::GLOO);
  EXPECT_EQ(With("model.encoder=nature-cnn").model().encoder(), v1::NATURE_CNN);
  EXPECT_THAT(LoadError("ppo {}", {"optimizer.type=adm"}),
              AllOf(HasSubstr("ADAM, RMSPROP, MUON"),
                    HasSubstr("did you mean \"ADAM\"?")));
}

TEST_F(ConfigTest, BooleansComeInWords) {
  EXPECT_FALSE(With("runtime.deterministic=False").runtime().deterministic());
  EXPECT_TRUE(With("metrics.tensorboard=yes").metrics().tensorboard());
  EXPECT_THAT(LoadError("ppo {}", {"metrics.tensorboard=maybe"}),
              HasSubstr("expected true or false"));
}

// runtime.bf16 is what runtime.precision was before, also in old runs' folders.
TEST_F(ConfigTest, PrecisionIsReadByItsOldName) {
  const auto precision = [&](const std::string& override_text,
                             const std::string& file) {
    const v1::RuntimeConfig runtime = With(override_text, file).runtime();
    EXPECT_FALSE(runtime.has_bf16());
    return runtime.precision();
  };
  const std::string old = "ppo {} runtime { bf16: true }";
  EXPECT_EQ(precision("seed=1", old), v1::BF16);
  EXPECT_EQ(precision("runtime.bf16=true", "ppo {}"), v1::BF16);
  EXPECT_EQ(precision("runtime.bf16=false", old), v1::FP32);
  EXPECT_EQ(precision("runtime.precision=fp32", old), v1::FP32);
  EXPECT_EQ(precision("runtime.precision=auto", "ppo {}"), v1::PRECISION_AUTO);
  // Resolved before there was another name.
  EXPECT_EQ(
      precision("runtime.precision=bf16", "ppo {} runtime { bf16: false }"),
      v1::BF16);
}

TEST_F(ConfigTest, AListReplaces) {
  const std::string file = "ppo {} model { hidden: [1, 2, 3] }";
  EXPECT_EQ(With("model.hidden=[64, 32]", file).model().hidden_size(), 2);
  EXPECT_EQ(With("model.hidden=[64, 32]", file).model().hidden(1), 32);
  EXPECT_EQ(With("model.hidden=128", file).model().hidden(0), 128);
  EXPECT_EQ(With("model.hidden=[]", file).model().hidden_size(), 0);
  EXPECT_THAT(LoadError(file, {"model.hidden=[64"}), HasSubstr("[64,64]"));
}

TEST_F(ConfigTest, AMapTakesOneEntry) {
  const v1::RunConfig config =
      With("env.options.gym_kwargs.is_slippery=true",
           "ppo {} env { options { gym_kwargs { key: \"a\" value: \"1\" } } }");
  EXPECT_EQ(config.env().options().gym_kwargs().at("is_slippery"), "true");
  EXPECT_EQ(config.env().options().gym_kwargs().at("a"), "1");
}

TEST_F(ConfigTest, AGymArgumentIsJsonOrElseAString) {
  const std::string file = "ppo {} env { id: \"gym:FrozenLake-v1\" }";
  for (const char* value :
       {"8x8", "x y", "\"8x8\"", "1e-3", "[1, 2]", "{\"a\": null}", "true"}) {
    const v1::RunConfig config =
        With(absl::StrCat("env.options.gym_kwargs.a=", value), file);
    EXPECT_EQ(config.env().options().gym_kwargs().at("a"), value);
    EXPECT_TRUE(Validate(config).ok()) << Validate(config);
  }
}

TEST_F(ConfigTest, AnIntegerMayBeGroupedOrBrief) {
  for (const char* million :
       {"1000000", "1_000_000", "1M", "1m", "1000k", "0.001G", "1e6"}) {
    EXPECT_EQ(With(absl::StrCat("total_env_steps=", million)).total_env_steps(),
              1000000)
        << million;
  }
  EXPECT_EQ(With("rollout.length=1k").rollout().length(), 1000);
  EXPECT_EQ(With("seed=18_446_744_073_709_551_615").seed(),
            std::numeric_limits<uint64_t>::max());
  for (const char* bad : {"1 M", "M", "1_M", "_1", "1_", "1__0", "1.5", "1T",
                          "1MM", "0.0001k", "1e300G"}) {
    EXPECT_THAT(LoadError("ppo {}", {absl::StrCat("total_env_steps=", bad)}),
                HasSubstr("500_000, 500k and 5e5"))
        << bad;
  }
}

TEST_F(ConfigTest, AHintUnderstandsAbbreviations) {
  for (const auto& [typed, meant] : std::map<std::string, std::string>{
           {"optimizer.lr", "optimizer.learning_rate"},
           {"lr", "optimizer.learning_rate"},
           {"total_steps", "total_env_steps"},
           {"total_timesteps", "total_env_steps"},
           {"steps", "total_env_steps"}}) {
    EXPECT_THAT(LoadError("ppo {}", {typed + "=1"}),
                HasSubstr("did you mean \"" + meant + "\"?"))
        << typed;
  }
}

TEST_F(ConfigTest, AnUnknownPathNamesTheNearest) {
  EXPECT_EQ(LoadError("ppo {}", {"ppo.epoch=8"}),
            "--set ppo.epoch=8: there is no field \"ppo.epoch\"; did you mean "
            "\"ppo.epochs\"?");
  EXPECT_THAT(LoadError("ppo {}", {"learning_rate=1"}),
              HasSubstr("did you mean \"optimizer.learning_rate\"?"));
}

TEST_F(ConfigTest, AHintNamesWhatCanBeSet) {
  EXPECT_THAT(LoadError("ppo {}", {"leaf=1"}),
              HasSubstr("did you mean \"model.leaf\"?"));
  EXPECT_THAT(LoadError("ppo {}", {"path=rgb"}),
              Not(HasSubstr("model.leaf.path")));
}

TEST_F(ConfigTest, EnumsInASectionAreMatchedAsElsewhere) {
  for (const char* leaf :
       {"{path: 'a' encoder: resnet}", "{ encoder : Resnet path:'a' }",
        "{path: 'a', encoder: RESNET;}"}) {
    const v1::RunConfig config = With(absl::StrCat("model.leaf=", leaf));
    ASSERT_EQ(config.model().leaf_size(), 1) << leaf;
    EXPECT_EQ(config.model().leaf(0).encoder(), v1::RESNET) << leaf;
    EXPECT_EQ(config.model().leaf(0).path(), "a") << leaf;
  }
  // What is quoted is nobody's business, and a number no word.
  const v1::RunConfig config =
      With("model.leaf={path: \"encoder: mlp\" hidden: [8, 9]}");
  EXPECT_EQ(config.model().leaf(0).path(), "encoder: mlp");
  EXPECT_EQ(config.model().leaf(0).hidden(1), 9);
  EXPECT_THAT(LoadError("ppo {}", {"model.leaf={path: 'a' encoder: resnett}"}),
              HasSubstr("did you mean \"RESNET\"?"));
}

TEST_F(ConfigTest, AHintNamesTheChosenAlgorithm) {
  EXPECT_THAT(LoadError("impala {}", {"discount=1"}),
              HasSubstr("did you mean \"impala.discount\"?"));
}

TEST_F(ConfigTest, AnAlgorithmThatWasNotChosenIsRefused) {
  EXPECT_THAT(LoadError("ppo {}", {"dqn.n_step=5"}),
              AllOf(StartsWith("--set dqn.n_step=5: "), HasSubstr("is ppo")));
  EXPECT_THAT(LoadError("", {"dqn.n_step=5"}), HasSubstr("dqn {}"));
}

TEST_F(ConfigTest, ASectionAndAnEmptyFlagAreRefused) {
  EXPECT_THAT(LoadError("ppo {}", {"ppo=8"}),
              AllOf(HasSubstr("is a section"), HasSubstr("epochs")));
  EXPECT_THAT(LoadError("ppo {}", {"ppo.epochs"}),
              HasSubstr("expected path=value"));
  EXPECT_THAT(LoadError("ppo {}", {"seed.x=1"}), HasSubstr("no fields in it"));
}

TEST_F(ConfigTest, ABadOverrideChangesNothing) {
  v1::RunConfig config;
  config.mutable_ppo();
  const v1::RunConfig before = config;
  EXPECT_FALSE(ApplyOverride("model.hidden=[1,x]", &config).ok());
  EXPECT_FALSE(ApplyOverride("rollout.lenth=3", &config).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(config, before));
}

// ---- Resolved

TEST_F(ConfigTest, ResolvedWritesEveryDefault) {
  const std::string text = FormatResolved(*Load("ppo {}"));
  for (const char* line :
       {"seed: 1\n", "total_env_steps: 500000\n", "  id: \"CartPole-v1\"\n",
        "  schedule: LINEAR\n", "  encoder: ENCODER_AUTO\n",
        "  hidden: [64, 64]\n", "  learning_rate: 0.00025\n",
        "  shared_memory: true\n", "  dead_after_seconds: 5\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_EQ(text.find("dqn"), text.npos);
  EXPECT_EQ(text.find("stop_return"), text.npos);  // unset means never
}

// Every scalar with a declared default, down every section, has to be there.
void ExpectAllSet(const google::protobuf::Message& message) {
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const auto* field = message.GetDescriptor()->field(i);
    if (field->is_repeated()) continue;
    const bool has = message.GetReflection()->HasField(message, field);
    if (field->full_name() == "flotilla.v1.RuntimeConfig.bf16") {
      EXPECT_FALSE(has);  // runtime.precision's old name
      continue;
    }
    EXPECT_TRUE(has || !field->has_default_value()) << field->full_name();
    if (has && field->message_type() != nullptr) {
      ExpectAllSet(message.GetReflection()->GetMessage(message, field));
    }
  }
}

TEST_F(ConfigTest, ResolvedLeavesNoFieldOut) {
  for (const char* algorithm : {"ppo", "dqn", "impala"}) {
    for (const char* env : {"CartPole-v1", "Sleep", "Maze", "ALE/Pong-v5"}) {
      ExpectAllSet(Resolved(
          *Load(absl::StrCat(algorithm, " {} env { id: \"", env, "\" }"))));
    }
  }
}

TEST_F(ConfigTest, ResolvedReadsBackToItself) {
  const auto config = Load(
      "seed: 5 dqn { epsilon_end: 0.1 } optimizer { learning_rate: 1e-3 } "
      "env { id: \"gym:Acrobot-v1\" options { "
      "gym_kwargs { key: \"b\" value: \"2\" } "
      "gym_kwargs { key: \"a\" value: \"\\\"x\\\"\" } } }");
  ASSERT_TRUE(config.ok()) << config.status();
  const auto again = Load(FormatResolved(*config));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(MessageDifferencer::Equals(*again, Resolved(*config)));
  EXPECT_EQ(FormatResolved(*again), FormatResolved(*config));
}

TEST_F(ConfigTest, ResolvingKeepsAValidConfigurationValid) {
  for (const char* env : {"CartPole-v1", "Pendulum-v1", "Sleep", "Maze",
                          "ALE/Pong-v5", "gym:Acrobot-v1"}) {
    const auto config = Load(absl::StrCat("ppo {} env { id: \"", env, "\" }"));
    EXPECT_EQ(Validate(*config), absl::OkStatus());
    EXPECT_EQ(Validate(Resolved(*config)), absl::OkStatus()) << env;
  }
}

TEST_F(ConfigTest, ResolvedHiddenFollowsTheEncoder) {
  const auto hidden = [&](const std::string& text) {
    const v1::RunConfig resolved = Resolved(*Load(text));
    return std::vector<int>(resolved.model().hidden().begin(),
                            resolved.model().hidden().end());
  };
  EXPECT_EQ(hidden("env { id: \"ALE/Pong-v5\" }"), std::vector<int>{512});
  EXPECT_EQ(hidden("model { encoder: MLP }"), (std::vector<int>{64, 64}));
  EXPECT_EQ(hidden("model { hidden: 7 }"), std::vector<int>{7});
  EXPECT_EQ(hidden("env { id: \"gym:X-v1\" }"), std::vector<int>{});
}

TEST_F(ConfigTest, DigestIsOfTheMeaningNotTheText) {
  const std::string plain = ConfigDigest(*Load("ppo {}"));
  EXPECT_EQ(plain.size(), 64);
  EXPECT_EQ(plain, ConfigDigest(*Load("# same\nseed: 1\nppo { epochs: 4 }")));
  EXPECT_NE(plain, ConfigDigest(*Load("seed: 2 ppo {}")));
}

// ---- Validation

struct Refusal {
  const char* override_text;
  const char* expected;  // part of the message
  const char* config = "ppo {}";
};

class RefusalTest : public testing::TestWithParam<Refusal> {};

TEST_P(RefusalTest, NamesFieldValueAndRemedy) {
  v1::RunConfig config;
  ASSERT_TRUE(TextFormat::ParseFromString(GetParam().config, &config));
  ASSERT_EQ(Validate(config), absl::OkStatus()) << "before the override";
  ASSERT_EQ(ApplyOverride(GetParam().override_text, &config), absl::OkStatus());
  const absl::Status status = Validate(config);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr(GetParam().expected));
}

constexpr char kAtari[] = "ppo {} env { id: \"ALE/Pong-v5\" }";
constexpr char kSleep[] = "ppo {} env { id: \"Sleep\" }";
constexpr char kMaze[] = "ppo {} env { id: \"Maze\" }";
constexpr char kGym[] = "ppo {} env { id: \"gym:Acrobot-v1\" }";
constexpr char kLstm[] = "ppo {} model { recurrent: LSTM }";

INSTANTIATE_TEST_SUITE_P(
    Config, RefusalTest,
    testing::Values(
        Refusal{"total_env_steps=0", "total_env_steps is 0; it must be at"},
        Refusal{"env.id=", "`flotilla envs` lists them"},
        Refusal{"env.server=my_server.py", "want exec:COMMAND ARGS"},
        Refusal{"env.server=exec:", "names no program"},
        Refusal{"env.server=exec: ", "names no program"},
        Refusal{"env.server=exec:a 'b", "has a ' that nothing closes"},
        Refusal{"env.server=unix:", "unix:PATH or HOST:PORT"},
        Refusal{"env.server=localhost", "unix:PATH or HOST:PORT"},
        Refusal{"env.server=localhost:0", "unix:PATH or HOST:PORT"},
        Refusal{"env.server=localhost:70000", "unix:PATH or HOST:PORT"},
        Refusal{"env.num_envs=0", "env.num_envs is 0; it must be at least 1"},
        Refusal{"env.num_envs=5", "2; use 4 or 6"},
        Refusal{"env.num_workers=4", "4 * 2; use 8"},
        Refusal{"env.groups=0", "env.groups is 0"},
        Refusal{"env.step_timeout_seconds=0", "must be above 0"},
        Refusal{"env.quorum=1.5", "must be from 0 to 1"},
        Refusal{"env.options.atari.noop_max=3", "CartPole-v1 does not read it"},
        Refusal{"env.options.maze.size=9", "it reads env.options.sleep",
                kSleep},
        Refusal{"env.options.gym_kwargs.a=1", "does not read it", kAtari},
        Refusal{"env.options.gym_kwargs.a=[1,2", "and is none", kGym},
        Refusal{"env.options.gym_kwargs.a=False", "JSON says false", kGym},
        Refusal{"env.options.kwargs.a=None", "JSON says null"},
        Refusal{"env.options.kwargs.a={\"b\": }", "and is none"},
        Refusal{
            "env.options.kwargs.a=1",
            "env.options.kwargs.a is set, and env.options.gym_kwargs.a too",
            "ppo {} env { id: \"gym:X-v1\" options { gym_kwargs { key: \"a\" "
            "value: \"1\" } } }"},
        Refusal{"env.options.atari.frame_skip=0", "atari.frame_skip is 0",
                kAtari},
        Refusal{"env.options.sleep.step_ms=-1", "sleep.step_ms is -1", kSleep},
        Refusal{"env.options.maze.size=8", "must be odd", kMaze},
        Refusal{"rollout.length=0", "rollout.length is 0"},
        Refusal{"model.hidden=[64,0]", "model.hidden is 0"},
        Refusal{"model.hidden=[1,2]", "NATURE_CNN takes one",
                "ppo {} model { encoder: NATURE_CNN }"},
        Refusal{"optimizer.learning_rate=0", "must be above 0"},
        Refusal{"optimizer.learning_rate=inf",
                "optimizer.learning_rate is inf"},
        Refusal{"optimizer.beta1=1", "below 1"},
        Refusal{"ppo.minibatches=7",
                "rollout.length * env.num_envs = 128 * 4 = 512; use 4 or 8"},
        // Primes: no divisor of the batch is near.
        Refusal{"ppo.minibatches=3",
                "does not divide the batch rollout.length * env.num_envs = "
                "2147483647 * 2147483629 = 4611685975477714963; use 1 or "
                "4611685975477714963",
                "ppo { minibatches: 1 } rollout { length: 2147483647 } "
                "env { num_envs: 2147483629 groups: 1 }"},
        Refusal{"ppo.minibatches=0", "ppo.minibatches is 0"},
        Refusal{"ppo.minibatches=8", "keeps whole sequences together", kLstm},
        Refusal{"ppo.normalize_advantages_over_ranks=true", "both or neither",
                "ppo { normalize_advantages: false }"},
        Refusal{"ppo.max_minibatch=-1", "must be at least 0"},
        Refusal{"ppo.max_minibatch=100", "one sequence of rollout.length = 128",
                kLstm},
        Refusal{"ppo.discount=1.1", "ppo.discount is 1.1"},
        Refusal{"ppo.clip_ratio=0", "must be above 0"},
        Refusal{"model.recurrent=gru", "dqn has no recurrent form", "dqn {}"},
        Refusal{"model.torchscript=net.pt", "dqn builds its own network",
                "dqn {}"},
        Refusal{"model.recurrent=gru", "none with memory is supported yet",
                "ppo {} model { torchscript: \"net.pt\" }"},
        Refusal{"checkpoint.replay=true", "ppo keeps no replay; remove it"},
        Refusal{"dqn.replay_capacity=8", "dqn.batch_size = 32", "dqn {}"},
        Refusal{"dqn.replay_capacity=3000000000",
                "dqn.replay_capacity is 3000000000; a learner's replay holds "
                "2000000000 transitions at most",
                "dqn {}"},
        Refusal{"dqn.replay_capacity=60", "20 * env.num_envs = 80",
                "dqn { n_step: 20 }"},
        Refusal{"model.normalize_rewards=true", "dqn needs false", "dqn {}"},
        Refusal{"model.conv_channels=[32,64]", "three convolutions",
                "ppo {} model { encoder: NATURE_CNN }"},
        Refusal{"model.conv_channels=[32,64,0]", "conv_channels is 0", kAtari},
        Refusal{"model.conv_channels=[1,2,3]", "MLP does not read it",
                "ppo {} model { encoder: MLP }"},
        Refusal{"dqn.epsilon_end=0.9", "must not grow",
                "dqn { epsilon_start: 0.5 }"},
        Refusal{"impala.minibatches=3", "does not divide", "impala {}"},
        Refusal{"impala.rho_clip=0", "must be above 0", "impala {}"},
        Refusal{"distributed.preemption_fraction=0.5", "ahead of the learner",
                "impala {} runtime { deterministic: false }"},
        Refusal{"rollout.queue_capacity=0", "must be at least 1", "impala {}"},
        Refusal{"rollout.max_policy_lag=-1", "must be at least 0", "impala {}"},
        Refusal{"optimizer.schedule_end=1.5", "from 0 to 1"},
        Refusal{"ppo.minibatch=segments", "keeps environments whole; use 4",
                "ppo { minibatches: 8 }"},
        Refusal{"model.leaf={path: \"rgb\" frame_stack: 99}",
                "model.leaf[0].frame_stack is 99"},
        Refusal{"model.leaf={path: \"rgb\" encoder: resnet frame_stack: 99}",
                "model.leaf[0].frame_stack is 99"},
        Refusal{"ppo.priority_beta=2", "from 0 to 1",
                "ppo { minibatch: SEGMENTS }"},
        Refusal{"evaluation.stop_return=475", "set evaluation.every_updates"},
        Refusal{"evaluation.at_start=true", "needs evaluation.every_updates"},
        Refusal{"evaluation.at_start=true", "no evaluation.min_training_return",
                "ppo {} evaluation { every_updates: 1 "
                "min_training_return: 0 }"},
        Refusal{"evaluation.episodes=0", "evaluation.episodes is 0"},
        Refusal{"checkpoint.keep=0", "checkpoint.keep is 0"},
        Refusal{"distributed.dead_after_seconds=1.9",
                "at least twice distributed.heartbeat_seconds = 1"},
        Refusal{"distributed.heartbeat_seconds=0.001", "0.01"},
        Refusal{"runtime.device=gpu", "use auto, cpu, cuda or cuda:N"},
        Refusal{"runtime.device=cuda:x", "cuda:N"}));

TEST_F(ConfigTest, AnAlgorithmHasToBeChosen) {
  EXPECT_THAT(Message(Validate(v1::RunConfig())),
              HasSubstr("algorithm is not chosen"));
}

TEST_F(ConfigTest, EveryProblemIsReported) {
  const std::string message =
      Message(Validate(*Load("ppo { epochs: 0 } rollout { length: -1 }")));
  EXPECT_THAT(message, AllOf(HasSubstr("rollout.length is -1"),
                             HasSubstr("\nppo.epochs")));
}

TEST_F(ConfigTest, ValidLoadingNamesThePlaceOfEachProblem) {
  WriteFile(path(), "ppo {\n  minibatches: 7\n}\nenv { num_envs: 4 }\n");
  const auto config =
      LoadValidRunConfig(path(), {"env.groups=0", "env.groups=3"});
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(config.status()),
              AllOf(StartsWith(path() + ":4:7: env.num_envs is 4"),
                    HasSubstr("\n" + path() + ":2:3: ppo.minibatches is 7")));
  const auto flagged =
      LoadValidRunConfig(path(), {"ppo.minibatches=4", "env.groups=0"});
  EXPECT_EQ(Message(flagged.status()),
            "--set env.groups=0: env.groups is 0; it must be at least 1");
}

TEST_F(ConfigTest, ValidLoadingGivesTheConfiguration) {
  WriteFile(path(), "ppo {}");
  const auto config = LoadValidRunConfig(path(), {"seed=9"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->seed(), 9);
}

TEST(ConfigRulesTest, OptionsPartFollowsTheEnvironment) {
  const auto part = [](const std::string& id) {
    v1::EnvConfig env;
    env.set_id(id);
    return EnvOptionsPart(env);
  };
  EXPECT_EQ(part("ALE/Pong-v5"), "atari");
  EXPECT_EQ(part("Sleep"), "sleep");
  EXPECT_EQ(part("Maze"), "maze");
  EXPECT_EQ(part("gym:Acrobot-v1"), "gym_kwargs");
  EXPECT_EQ(part("pettingzoo:classic/connect_four_v3"), "");
  EXPECT_EQ(part("CartPole-v1"), "");
}

// What it means, and which options it reads, only its server knows.
TEST_F(ConfigTest, OfAnothersServerNothingIsAssumed) {
  for (const char* server :
       {"exec:python3 my_server.py --size='8 x 8'", "unix:/tmp/socket",
        "localhost:5000", "[::1]:5000", "unix:relative/socket"}) {
    for (const char* id : {"Maze", "Mine-v0", "ALE/odd", "gym:"}) {
      v1::RunConfig config =
          With("env.options.maze.size=9",
               "ppo {} env { options { sleep { step_ms: 1 } } }");
      config.mutable_env()->set_server(server);
      config.mutable_env()->set_id(id);
      EXPECT_EQ(Validate(config), absl::OkStatus()) << server << " " << id;
    }
  }
  v1::RunConfig config = With("env.server=exec:./mine");
  for (const char* id : {"CartPole-v1", "ALE/Pong-v5", "Maze"}) {
    config.mutable_env()->set_id(id);
    const v1::RunConfig resolved = Resolved(config);
    EXPECT_EQ(resolved.model().hidden_size(), 0) << id;
    EXPECT_FALSE(resolved.env().options().has_maze());
    EXPECT_FALSE(resolved.env().options().has_atari());
  }
}

}  // namespace
}  // namespace flotilla
