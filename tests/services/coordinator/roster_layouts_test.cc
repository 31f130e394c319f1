#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "services/coordinator/roster.h"
#include "tests/services/coordinator/roster_fixture.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

class RosterLayoutTest : public RosterTest {
 protected:
  // Who trains what has the layout `digest`.
  absl::StatusOr<uint64_t> JoinAs(v1::JoinGenerationRequest request,
                                  const std::string& digest) {
    request.set_layout_digest(digest);
    return roster_->Join(request, kKey, clock_.Now());
  }
};

TEST_F(RosterLayoutTest,
       JoinersOfAnotherLayoutAreRefusedByNameAndDisturbNobody) {
  Make(1, 3);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(JoinAs(Request(Learner(0)), "cart"));
  Pass(absl::Seconds(30), {Learner(0)});
  ASSERT_EQ(state(), v1::ACTIVE);

  ASSERT_OK(Register(Learner(1)));
  const auto is_refused =
      StatusIs(StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("learner/0/1 on host0 has another network"),
                     HasSubstr("than rank 0 (learner/0/0) on host0"),
                     HasSubstr("layout digest \"maze\", want \"cart\"")));
  EXPECT_THAT(JoinAs(Request(Learner(1)), "maze"), is_refused);
  Pass(absl::Minutes(1), {Learner(0), Learner(1)}, 1);
  EXPECT_EQ(state(), v1::ACTIVE);
  EXPECT_EQ(roster_->Command().fenced_generation(), 0u);

  // Nor while the state's holder is between two generations.
  ASSERT_OK(Fail(Learner(0), 1));
  EXPECT_THAT(JoinAs(Request(Learner(1)), "maze"), is_refused);
  ASSERT_OK(Leave(Learner(1)));
  ASSERT_OK(JoinAs(Request(Learner(0), 1, 7), "cart"));
  EXPECT_EQ(Place(Learner(0), 1)->world_size(), 1);

  Restart();
  ASSERT_OK(Beat(Learner(0), 2));
  ASSERT_OK(Register(Learner(1, 2)));
  EXPECT_THAT(JoinAs(Request(Learner(1, 2)), "maze"), is_refused);
  EXPECT_OK(JoinAs(Request(Learner(1, 2)), "cart"));
  EXPECT_EQ(state(), v1::ACTIVE);
  ASSERT_OK(Register(Learner(2)));
  EXPECT_OK(JoinAs(Request(Learner(2)), ""));  // does not say
  EXPECT_EQ(roster_->Command().fenced_generation(), 2u);
}

TEST_F(RosterLayoutTest, WhereNobodyHoldsTheRunsStateEveryLayoutMayJoin) {
  Make(2);
  const std::vector<v1::Member> both = {Learner(0), Learner(1)};
  for (const v1::Member& member : both) ASSERT_OK(Register(member));
  ASSERT_OK(JoinAs(Request(both[0]), "cart"));
  ASSERT_OK(JoinAs(Request(both[1]), "maze"));
  EXPECT_EQ(Place(both[1])->layout_digest(), "cart");
  EXPECT_EQ(state(), v1::ACTIVE);

  // All that held it are gone, and others have their places.
  ASSERT_OK(Register(Learner(0, 2)));
  ASSERT_OK(Register(Learner(1, 2)));
  ASSERT_OK(Register(Learner(2)));
  EXPECT_OK(JoinAs(Request(Learner(2)), "maze"));
  ASSERT_OK(Leave(Learner(2)));
  ASSERT_OK(JoinAs(Request(Learner(0, 2)), "maze"));
  ASSERT_OK(JoinAs(Request(Learner(1, 2)), "maze"));
  EXPECT_EQ(Place(Learner(0, 2))->generation(), 2u);
}

TEST_F(RosterLayoutTest, ALayoutDigestIsShort) {
  Make(1);
  ASSERT_OK(Register(Learner(0)));
  EXPECT_THAT(
      JoinAs(Request(Learner(0)), std::string(257, 'x')),
      StatusIs(StatusCode::kInvalidArgument,
               AllOf(HasSubstr("layout_digest"), HasSubstr("257 bytes"))));
  EXPECT_THAT(JoinAs(Request(Learner(0)), "a\nb"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("printable")));
}

// Its launcher says so, whatever the others are about.
TEST_F(RosterLayoutTest, WhoIsRefusedForItsLayoutClosesNothing) {
  Make(1, 3);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(JoinAs(Request(Learner(0)), "cart"));
  Pass(absl::Seconds(30), {Learner(0)});
  v1::CloseRunRequest gives_up;
  gives_up.set_member_id(Learner(1).id());
  gives_up.set_status("failed");
  ASSERT_OK(Register(Learner(1)));
  ASSERT_OK(Fail(Learner(0), 1));
  ASSERT_EQ(state(), v1::FENCED);
  EXPECT_THAT(JoinAs(Request(Learner(1)), "maze"),
              StatusIs(StatusCode::kFailedPrecondition));
  ASSERT_OK(roster_->CloseRun(gives_up, kKey));
  EXPECT_FALSE(roster_->Command().closed());
  ASSERT_OK(Leave(Learner(1)));
  ASSERT_OK(JoinAs(Request(Learner(0), 1, 7), "cart"));
  EXPECT_EQ(Place(Learner(0), 1)->world_size(), 1);
}

TEST_F(RosterLayoutTest, NobodyIsRefusedForWhomIsOnlyBelievedToLive) {
  Make(1, 3);
  ASSERT_OK(Register(Learner(0)));
  ASSERT_OK(JoinAs(Request(Learner(0)), "cart"));
  Pass(absl::Seconds(30), {Learner(0)});
  Restart();  // and nobody has been heard of since
  ASSERT_OK(Register(Learner(1)));
  EXPECT_OK(JoinAs(Request(Learner(1)), "maze"));
  // Who was believed to live does: the other is told as it asks again.
  ASSERT_OK(Beat(Learner(0), 1));
  Pass(absl::Seconds(2), {Learner(0), Learner(1)}, 1);
  EXPECT_THAT(roster_->JoinResult(Request(Learner(1))),
              StatusIs(StatusCode::kUnavailable, HasSubstr("join again")));
  EXPECT_THAT(JoinAs(Request(Learner(1)), "maze"),
              StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_EQ(state(), v1::ACTIVE);
}

}  // namespace
}  // namespace flotilla
