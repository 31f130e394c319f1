#include "learner/algo/algorithm_table.h"

#include "services/algorithms/algorithm_traits.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::testing::HasSubstr;

class Row : public AlgorithmTraits {
 public:
  std::string name() const override { return "row"; }
  double Discount(const v1::RunConfig&) const override { return 0.5; }
  UpdatePlan PlanOf(const v1::RunConfig&) const override { return {}; }
  double StepsAtOnce(const v1::RunConfig&) const override { return 0; }
};

absl::StatusOr<std::unique_ptr<Algorithm>> Refuse(const v1::RunConfig&,
                                                  const Spaces&,
                                                  torch::Device) {
  return absl::UnimplementedError("not today");
}

TEST(AlgorithmTableTest, AFactoryIsAddedOnceAndToARow) {
  EXPECT_THAT(RegisterAlgorithmFactory("row", Refuse),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("\"row\"")));
  ASSERT_OK(RegisterAlgorithm(std::make_unique<Row>()));
  EXPECT_OK(RegisterAlgorithmFactory("row", Refuse));
  EXPECT_THAT(RegisterAlgorithmFactory("row", Refuse),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("\"row\"")));
}

// Those that have a factory already are those that can be made.
TEST(AlgorithmTableTest, EveryBuiltInRowHasAFactory) {
  for (const char* name : {"ppo", "dqn", "impala", "sac"}) {
    EXPECT_THAT(RegisterAlgorithmFactory(name, Refuse),
                StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(name)));
  }
}

TEST(AlgorithmTableTest, NoAlgorithmIsRefused) {
  EXPECT_THAT(MakeAlgorithm(v1::RunConfig(), Spaces(), torch::kCPU),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("names no algorithm; add ppo { }")));
}

}  // namespace
}  // namespace flotilla
