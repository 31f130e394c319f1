#include "launcher/completion_values.h"

#include <cstdlib>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> Texts(const std::string& value_name,
                               const std::string& typed = "") {
  std::vector<std::string> texts;
  for (const auto& word : CompletionValues(value_name, typed).words) {
    texts.push_back(word.text);
  }
  return texts;
}

TEST(CompletionValuesTest, FieldsComeLevelByLevel) {
  EXPECT_THAT(Texts("PATH=VALUE"), AllOf(Contains("seed="), Contains("ppo."),
                                         Not(Contains("ppo.epochs="))));
  EXPECT_THAT(Texts("PATH=VALUE", "ppo.e"),
              AllOf(Contains("ppo.epochs="), Each(StartsWith("ppo."))));
  EXPECT_THAT(
      Texts("PATH=VALUE", "env.options."),
      AllOf(Contains("env.options.kwargs."), Contains("env.options.maze.")));
  EXPECT_THAT(Texts("FIELD", "pp"), AllOf(Contains("ppo"), Contains("ppo.")));
}

TEST(CompletionValuesTest, ValuesOfAFieldFollowIt) {
  EXPECT_THAT(Texts("PATH=VALUE", "model.activation=T"),
              ElementsAre("model.activation=TANH", "model.activation=RELU"));
  EXPECT_THAT(Texts("PATH=VALUE", "runtime.bf16="),
              ElementsAre("runtime.bf16=true", "runtime.bf16=false"));
  EXPECT_THAT(Texts("PATH=VALUE", "nonsense="), IsEmpty());
}

TEST(CompletionValuesTest, RunsAreThoseInRuns) {
  TempDir folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::create_directories(folder / "runs/empty");
  std::filesystem::create_directories(folder / "runs/first");
  WriteFile(folder / "runs/first/config.textproto", "");
  std::filesystem::current_path(folder.path());
  EXPECT_THAT(Texts("RUN"), ElementsAre("runs/first"));
  EXPECT_EQ(CompletionValues("RUN", "ru").paths, Completion::Paths::kNone);
  EXPECT_EQ(CompletionValues("RUN", "/data").paths,
            Completion::Paths::kFolders);
  std::filesystem::current_path(before);
}

TEST(CompletionValuesTest, EnvironmentsAreThoseOfTheServer) {
  setenv("FLOTILLA_PROGRAM_FOLDER", std::getenv("FLOTILLA_BIN"), 1);
  EXPECT_THAT(Texts("ID"), Contains("CartPole-v1"));
  EXPECT_THAT(Texts("HOST:PORT"), IsEmpty());
}

}  // namespace
}  // namespace flotilla
