#include "launcher/config_docs.h"

#include <algorithm>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/text_layout.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Explained(const std::string& path,
                      const std::vector<ShippedConfig>& configs = {},
                      size_t width = 80) {
  const auto text = ExplainField(path, configs, width);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

std::string Refusal(const std::string& path) {
  const auto text = ExplainField(path, {}, 80);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(text.status().message());
}

TEST(ConfigDocsTest, EveryFieldIsExplained) {
  const std::vector<std::string> paths = ConfigPaths();
  EXPECT_GT(paths.size(), 150);
  for (const std::string& path : paths) {
    const auto field = FindConfigField(path);
    ASSERT_TRUE(field.ok()) << field.status();
    EXPECT_GT(CommentOf(*field).size(), 4)
        << path << ": write above it in config.proto what it is";
    EXPECT_THAT(Explained(path), HasSubstr(path));
  }
}

TEST(ConfigDocsTest, SaysWhatTheFileSays) {
  const std::string text = Explained("ppo.clip_ratio");
  EXPECT_THAT(text, AllOf(HasSubstr("number, above 0"), HasSubstr("0.2"),
                          HasSubstr("Nothing is gained by moving an action's "
                                    "probability ratio further than this")));
  EXPECT_THAT(text, HasSubstr("can change: `flotilla set RUN ppo.clip_ratio"));
  EXPECT_THAT(Explained("env.num_envs"), HasSubstr("cannot change in flight"));
  // Beside a field, not above it.
  EXPECT_THAT(Explained("ppo.normalize_advantages"),
              HasSubstr("per minibatch and rank"));
  EXPECT_THAT(Explained("env.options.maze.view"),
              HasSubstr("integer, odd and at least 1"));
  EXPECT_THAT(Explained("model.hidden"),
              HasSubstr("list, each: integer, at least 1"));
}

TEST(ConfigDocsTest, SaysWhatAValueMeans) {
  EXPECT_THAT(Explained("optimizer.type"),
              AllOf(HasSubstr("ADAM"), HasSubstr("MUON     PufferLib's")));
  EXPECT_THAT(Explained("distributed.gradients"),
              HasSubstr("BUCKETS  All-reduces overlap backward"));
}

TEST(ConfigDocsTest, SectionsAreExplainedInShort) {
  const std::string text = Explained("ppo");
  EXPECT_THAT(text, AllOf(HasSubstr("Schulman et al. 2017"),
                          HasSubstr("  epochs"), HasSubstr("[4]")));
  // The first sentence alone.
  EXPECT_THAT(text, AllOf(HasSubstr("Of an epoch; divides"),
                          Not(HasSubstr("With model.recurrent"))));
  EXPECT_THAT(Explained(""), AllOf(HasSubstr("env {}"), HasSubstr("seed")));
  EXPECT_THAT(Explained("env.options.kwargs.map_name"),
              HasSubstr("Options of an environment"));
  EXPECT_THAT(Explained("model.leaf.encoder"), HasSubstr("one-hot"));
}

TEST(ConfigDocsTest, SaysWhatConfigurationsSetItTo) {
  TempDir folder;
  WriteFile(folder / "a.textproto",
            "ppo { epochs: 8 } model { hidden: [1, 2] }");
  WriteFile(folder / "b.textproto", "ppo {}");
  WriteFile(folder / "c.textproto", "ppo { epochs: 8 }");
  WriteFile(folder / "broken.textproto", "ppo {");
  std::vector<ShippedConfig> configs;
  for (const std::string name : {"a", "b", "broken", "c"}) {
    configs.push_back({name, folder / (name + ".textproto"), ""});
  }
  EXPECT_THAT(Explained("ppo.epochs", configs), HasSubstr("  8  a, c\n"));
  EXPECT_THAT(Explained("model.hidden", configs), HasSubstr("[1, 2]  a\n"));
  EXPECT_THAT(Explained("ppo", configs), HasSubstr("set  a, b, c\n"));
  EXPECT_THAT(Explained("ppo.minibatches", configs),
              Not(HasSubstr("come with Flotilla")));
}

TEST(ConfigDocsTest, AValueMayBeWiderThanTheTerminal) {
  TempDir folder;
  WriteFile(folder / "pointnav.textproto", R"pb(
    ppo {}
    model {
      leaf {
        path: "depth"
        encoder: NATURE_CNN
        conv_channels: [ 16, 32, 32 ]
        hidden: [ 128 ]
      }
      leaf {
        path: "goal"
        hidden: [ 32 ]
      }
    })pb");
  const std::vector<ShippedConfig> configs = {
      {"pointnav", folder / "pointnav.textproto", ""}};
  for (const size_t width : {1, 5, 20, 34, 80, 100}) {
    EXPECT_THAT(Explained("model.leaf", configs, width),
                AllOf(HasSubstr("NATURE_CNN"), HasSubstr("pointnav\n")))
        << width;
    EXPECT_THAT(Explained("ppo", configs, width), HasSubstr("epochs"));
  }
  for (const auto& line :
       absl::StrSplit(Explained("model.leaf", configs, 50), '\n')) {
    EXPECT_LE(line.size(), 50) << line;
  }
}

TEST(ConfigDocsTest, ATypoGetsTheNearestName) {
  EXPECT_THAT(Refusal("ppo.epoch"), HasSubstr("did you mean \"ppo.epochs\"?"));
  EXPECT_THAT(Refusal("epochs"),
              HasSubstr("did you mean \"ppo.epochs\" or \"impala.epochs\"?"));
  EXPECT_THAT(Refusal("epoch"),
              HasSubstr("did you mean \"ppo.epochs\" or \"impala.epochs\"?"));
  EXPECT_THAT(Refusal("sed"), HasSubstr("did you mean \"seed\"?"));
  EXPECT_THAT(Refusal("seed.x"), HasSubstr("there is no field \"seed.x\""));
  EXPECT_THAT(Refusal("ppo."), HasSubstr("there is no field"));
}

TEST(ConfigDocsTest, TheNamesOfOthersGetOurs) {
  EXPECT_THAT(Refusal("gamma"),
              HasSubstr("did you mean \"ppo.discount\" or \"dqn.discount\" or "
                        "\"impala.discount\" or \"sac.discount\"?"));
  EXPECT_THAT(Refusal("ppo.gamma"),
              HasSubstr("did you mean \"ppo.discount\"?"));
  EXPECT_THAT(Refusal("ppo.lr"),
              HasSubstr("did you mean \"optimizer.learning_rate\"?"));
  EXPECT_THAT(Refusal("batch_size"),
              HasSubstr("did you mean \"dqn.batch_size\" or "
                        "\"sac.batch_size\"?"));
  EXPECT_THAT(Refusal("ppo.batch_size"), HasSubstr("ppo.minibatches steps"));
}

TEST(ConfigDocsTest, NoLineIsWiderThanTheTerminal) {
  for (const std::string path : {"", "env", "distributed.bucket_bytes"}) {
    for (const auto& line : absl::StrSplit(Explained(path, {}, 50), '\n')) {
      EXPECT_LE(line.size(), 50) << line;
    }
  }
}

TEST(ConfigDocsTest, FixedValuesAreThoseOfEnumsAndSwitches) {
  EXPECT_THAT(FixedValues(*FindConfigField("model.activation")),
              ElementsAre("TANH", "RELU"));
  EXPECT_THAT(FixedValues(*FindConfigField("runtime.bf16")),
              ElementsAre("true", "false"));
  EXPECT_THAT(FixedValues(*FindConfigField("seed")), IsEmpty());
}

TEST(TextLayoutTest, ColumnsAreAsWideAsTheyMustBe) {
  EXPECT_EQ(
      Table({{"run", "none", "steps"}, {"a", "", "5"}, {"ü", "", "500"}}, {2}),
      "run  steps\na        5\nü      500\n");
}

}  // namespace
}  // namespace flotilla
