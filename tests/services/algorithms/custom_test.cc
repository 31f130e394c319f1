#include "services/algorithms/custom.h"

#include <google/protobuf/text_format.h>

#include "services/base/config.h"
#include "services/base/config_rules.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Mine : public CustomAlgorithm {
 public:
  std::vector<CustomOption> Options() const override {
    return {{"discount", "0.9", "gamma"},
            {"clip", "true", "whether"},
            {"mode", "fast", "how"}};
  }
};

v1::RunConfig Parse(const std::string& text) {
  v1::RunConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

v1::RunConfig With(const std::string& option, const std::string& value) {
  v1::RunConfig config = Parse("custom { library: \"mine.so\" }");
  (*config.mutable_custom()->mutable_options())[option] = value;
  return config;
}

std::vector<ConfigProblem> Problems(const v1::RunConfig& config) {
  std::vector<ConfigProblem> problems;
  Mine().FindProblems(config, &problems);
  return problems;
}

TEST(CustomAlgorithmTest, OptionsAreThoseOfTheConfigurationOrTheirDefaults) {
  const Mine mine;
  const v1::RunConfig bare = Parse("custom { library: \"mine.so\" }");
  EXPECT_EQ(mine.Number(bare, "discount"), 0.9);
  EXPECT_EQ(mine.Discount(bare), 0.9);
  EXPECT_TRUE(mine.Flag(bare, "clip"));
  EXPECT_EQ(mine.Text(bare, "mode"), "fast");
  EXPECT_EQ(mine.Discount(With("discount", "0.5")), 0.5);
  EXPECT_FALSE(mine.Flag(With("clip", "false"), "clip"));
  EXPECT_DEATH(mine.Number(bare, "unknown"), "declares no option");
}

TEST(CustomAlgorithmTest, OptionsOfAnotherNameOrTypeAreProblems) {
  EXPECT_THAT(Problems(With("discount", "1e-1")), IsEmpty());
  EXPECT_THAT(Problems(With("mode", "3")), IsEmpty());
  for (const auto& [option, value, said] :
       {std::tuple("dicsount", "0.5", "did you mean \"discount\"?"),
        std::tuple("discount", "half", "is \"half\"; want a number"),
        std::tuple("discount", "inf", "is \"inf\"; want a number"),
        std::tuple("clip", "1", "is \"1\"; want true or false")}) {
    const auto problems = Problems(With(option, value));
    ASSERT_THAT(problems, SizeIs(1)) << option;
    EXPECT_EQ(problems[0].path, absl::StrCat("custom.options.", option));
    EXPECT_THAT(problems[0].message, HasSubstr(said));
  }
}

TEST(CustomAlgorithmTest, OneThatIsNotLoadedTakesAnyOptionAndNeedsALibrary) {
  EXPECT_THAT(FindProblems(With("anything", "goes")), IsEmpty());
  const auto problems = FindProblems(Parse("custom {}"));
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_EQ(problems[0].path, "custom.library");
}

// The last, for the table is the process's.
TEST(CustomAlgorithmTest, ALibrarysRowTakesThePlaceAndMayBeReplaced) {
  const size_t rows = AlgorithmNames().size();
  const v1::RunConfig config = With("discount", "0.25");
  EXPECT_EQ(Discount(config), 0.99);
  ASSERT_OK(RegisterAlgorithm(std::make_unique<Mine>()));
  EXPECT_EQ(Discount(config), 0.25);
  const AlgorithmTraits* before = FindAlgorithm("custom");
  ASSERT_OK(RegisterAlgorithm(std::make_unique<Mine>()));
  EXPECT_NE(FindAlgorithm("custom"), before);
  EXPECT_EQ(before->name(), "custom");  // pointers to it stay good
  EXPECT_EQ(AlgorithmNames().size(), rows);
}

}  // namespace
}  // namespace flotilla
