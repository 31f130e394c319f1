#include "learner/training/failure_budget.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/learner/collective/ranks.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const absl::Time kStart = absl::FromUnixSeconds(1000000);

// What each of two ranks makes of `lost` of its `seen` rows, over a full window.
std::vector<absl::Status> Verdicts(std::vector<int64_t> lost, double share,
                                   std::vector<int64_t> seen = {100, 100}) {
  std::vector<absl::Status> verdicts(2);
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const auto collective = MakeCollective(assignment, v1::DistributedConfig(),
                                           coordinator, torch::kCPU);
    ASSERT_THAT(collective.status(), IsOk());
    v1::EnvConfig env;
    env.set_max_failed_share(share);
    env.set_num_envs(8);
    FailedRows rows(env);
    const int rank = assignment.rank();
    absl::Time now = kStart;
    rows.NoteBatch(0, 0, now);
    // Of a longer time between two batches no more than this counts.
    for (int quarter = 0; quarter < 4; ++quarter) {
      now += rows.window() / 4;
      rows.NoteBatch(0, 0, now);
    }
    rows.NoteBatch(seen[rank], lost[rank], now);
    for (int64_t i = 0; i < lost[rank]; ++i) {
      rows.NoteFailure(absl::StrCat("rank ", rank, " broke"),
                       "Traceback\n  here", now);
    }
    FailureBudget budget(env, &rows, coordinator);
    Agreement agreement(rank, 2);
    budget.Add(/*committed=*/0, &agreement);
    ASSERT_THAT(agreement.Reduce(collective->get()), IsOk());
    verdicts[rank] = budget.Check(agreement, assignment.generation());
    EXPECT_EQ(budget.failed_rows(), lost[0] + lost[1]);
  });
  return verdicts;
}

TEST(FailureBudgetTest, RanksEndTogetherForTheNewestReasonOfOneThatHasOne) {
  for (const absl::Status& verdict : Verdicts({0, 80}, 0.3)) {
    EXPECT_THAT(
        verdict,
        StatusIs(absl::StatusCode::kResourceExhausted,
                 AllOf(HasSubstr("40% of the environments' steps"),
                       HasSubstr("env.max_failed_share is 0.3"),
                       HasSubstr("of rank 1: rank 1 broke\nTraceback"))));
  }
}

TEST(FailureBudgetTest, TheShareIsThatOfAllRanks) {
  for (const absl::Status& verdict : Verdicts({0, 80}, 0.5)) {
    EXPECT_THAT(verdict, IsOk());
  }
}

TEST(FailureBudgetTest, WhoeverCollectsMoreWhileOthersWaitWeighsAsItsRows) {
  for (const absl::Status& verdict : Verdicts({0, 9000}, 0.6, {10, 9000})) {
    EXPECT_THAT(verdict, IsOk());
  }
  for (const absl::Status& verdict : Verdicts({0, 9000}, 0.4, {10, 9000})) {
    EXPECT_THAT(verdict, StatusIs(absl::StatusCode::kResourceExhausted,
                                  HasSubstr("50% of the environments' steps")));
  }
}

TEST(FailureBudgetTest, WithoutRowsThereIsNothingToSpend) {
  FailureBudget budget(v1::EnvConfig(), nullptr, nullptr);
  Agreement agreement(0, 1);
  budget.Add(/*committed=*/0, &agreement);
  EXPECT_THAT(budget.Check(agreement, 1), IsOk());
}

}  // namespace
}  // namespace flotilla
