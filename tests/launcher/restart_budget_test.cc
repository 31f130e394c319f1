#include "launcher/restart_budget.h"

#include "gtest/gtest.h"

namespace flotilla {
namespace {

const absl::Time kStart = absl::UnixEpoch();

TEST(RestartBudgetTest, PausesGrow) {
  RestartBudget budget(10, absl::Minutes(10));
  for (const int seconds : {0, 1, 2, 4, 8, 16, 30, 30}) {
    EXPECT_EQ(budget.Charge(kStart), absl::Seconds(seconds));
  }
  EXPECT_EQ(budget.total(), 8);
}

TEST(RestartBudgetTest, IsSpentInsideTheWindow) {
  RestartBudget budget(2, absl::Minutes(10));
  EXPECT_TRUE(budget.Charge(kStart).has_value());
  EXPECT_TRUE(budget.Charge(kStart + absl::Minutes(5)).has_value());
  EXPECT_FALSE(budget.Charge(kStart + absl::Minutes(9)).has_value());
  EXPECT_EQ(budget.total(), 2);
}

TEST(RestartBudgetTest, OldRestartsAreForgotten) {
  RestartBudget budget(2, absl::Minutes(10));
  budget.Charge(kStart);
  budget.Charge(kStart + absl::Minutes(5));
  // Only the second one is left in the window: the pause shrinks again.
  EXPECT_EQ(budget.Charge(kStart + absl::Minutes(10)), absl::Seconds(1));
  EXPECT_EQ(budget.Charge(kStart + absl::Hours(1)), absl::ZeroDuration());
  EXPECT_EQ(budget.total(), 4);
}

TEST(RestartBudgetTest, ZeroAllowsNone) {
  RestartBudget budget(0, absl::Minutes(10));
  EXPECT_FALSE(budget.Charge(kStart).has_value());
}

}  // namespace
}  // namespace flotilla
