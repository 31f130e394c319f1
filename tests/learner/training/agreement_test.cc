#include "learner/training/agreement.h"

#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "learner/collective/solo_collective.h"
#include "tests/learner/collective/ranks.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr int kWorld = 3;

// Runs `body` on each rank with its agreement and collective.
void RunAgreements(const std::function<void(Agreement*, Collective*)>& body) {
  RunRanks(kWorld, [&](const v1::Assignment& assignment,
                       FakeCoordinatorClient* coordinator) {
    const auto collective = MakeCollective(assignment, v1::DistributedConfig(),
                                           coordinator, torch::kCPU);
    ASSERT_THAT(collective.status(), IsOk());
    Agreement agreement(assignment.rank(), kWorld);
    body(&agreement, collective->get());
  });
}

TEST(AgreementTest, HandlesReadWhatBecameOfTheirNumbers) {
  RunAgreements([](Agreement* a, Collective* collective) {
    const double mine = a->rank() + 1;  // 1, 2, 3
    const auto sum = a->AddSum("steps", 10 * mine);
    const auto mean = a->AddMean("loss", mine);
    const auto everybody = a->AddVote("save", true);
    const auto somebody = a->AddVote("stop", a->rank() == 2);
    const auto nobody = a->AddVote("solved", false);
    const auto sums = a->AddSums("noted", std::vector<double>{mine, -mine});
    const auto each = a->AddPerRank("lag", 7 * mine);
    ASSERT_THAT(a->Reduce(collective), IsOk());
    EXPECT_EQ((*a)[sum], 60);
    EXPECT_EQ((*a)[mean], 2);
    EXPECT_TRUE((*a)[everybody]);
    EXPECT_TRUE((*a)[somebody]);
    EXPECT_FALSE((*a)[nobody]);
    EXPECT_THAT((*a)[sums], ElementsAre(6, -6));
    EXPECT_THAT((*a)[each], ElementsAre(7, 14, 21));
    EXPECT_EQ((*a)[each].mean(), 14);
    EXPECT_EQ((*a)[each].max(), 21);
  });
}

TEST(AgreementTest, ARankAloneReadsItsOwn) {
  SoloCollective alone;
  Agreement a(0, 1);
  const auto mean = a.AddMean("loss", 3);
  const auto each = a.AddPerRank("lag", 2);
  const auto none = a.AddSums("noted", {});
  ASSERT_THAT(a.Reduce(&alone), IsOk());
  EXPECT_EQ(a[mean], 3);
  EXPECT_THAT(a[each], ElementsAre(2));
  EXPECT_TRUE(a[none].empty());
}

// Rank 1 adds something else: all ranks get an error that names who differs.
void ExpectRefused(const std::function<void(Agreement*)>& right,
                   const std::function<void(Agreement*)>& wrong) {
  RunAgreements([&](Agreement* a, Collective* collective) {
    (a->rank() == 1 ? wrong : right)(a);
    const absl::Status status = a->Reduce(collective);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(a->rank() == 1 ? "rank 0, 2 added other numbers "
                                           "than rank 1"
                                         : "rank 1 added other numbers than"));
  });
}

TEST(AgreementTest, RanksThatAddOtherNumbersAreToldSo) {
  const auto steps = [](Agreement* a) { a->AddSum("steps", 1); };
  ExpectRefused(steps, [](Agreement* a) { a->AddSum("episodes", 1); });
  ExpectRefused(steps, [](Agreement* a) { a->AddMean("steps", 1); });
  ExpectRefused(steps, [](Agreement*) {});
  ExpectRefused(
      [](Agreement* a) { a->AddSums("noted", std::vector<double>(400)); },
      [](Agreement* a) { a->AddSums("noted", std::vector<double>(40)); });
  ExpectRefused(
      [](Agreement* a) {
        a->AddSum("a", 1);
        a->AddSum("b", 1);
      },
      [](Agreement* a) {
        a->AddSum("b", 1);
        a->AddSum("a", 1);
      });
}

TEST(AgreementTest, ANumberThatIsNotFiniteSpoilsNoOther) {
  RunAgreements([](Agreement* a, Collective* collective) {
    const auto bad = a->AddSum("bad", a->rank() == 1 ? 0.0 / 0.0 : 1);
    const auto good = a->AddSum("good", 1);
    ASSERT_THAT(a->Reduce(collective), IsOk());
    EXPECT_THAT((*a)[bad], testing::IsNan());
    EXPECT_EQ((*a)[good], kWorld);
  });
}

}  // namespace
}  // namespace flotilla
