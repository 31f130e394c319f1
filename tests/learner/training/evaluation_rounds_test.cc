#include "learner/training/evaluation_rounds.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::Field;
using testing::UnorderedElementsAre;

auto Is(const char* name, double value) {
  return AllOf(Field(&Metric::name, name), Field(&Metric::value, value));
}

TEST(EvaluationRoundsTest, AnEnvironmentsOwnMetricsReplaceNoneOfOurs) {
  v1::Evaluation evaluation;
  evaluation.set_mean_return(250);
  evaluation.set_mean_length(90);
  evaluation.set_update(7);
  auto& own = *evaluation.mutable_mean_metric();
  own["mean_return"] = -1;
  own["update"] = -1;
  own["success"] = 0.5;
  EXPECT_THAT(MetricsOf(evaluation),
              UnorderedElementsAre(
                  Is("eval/mean_return", 250), Is("eval/mean_length", 90),
                  Is("eval/update", 7), Is("eval/success", 0.5)));
}

}  // namespace
}  // namespace flotilla
