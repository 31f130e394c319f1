#include "services/coordinator/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

using ::testing::ElementsAre;

v1::Member Learner(int node, int local, int requested_rank = -1) {
  v1::Member member;
  member.set_id(absl::StrCat("n", node, "/", local));
  member.set_host(absl::StrCat("host", node));
  member.set_node_rank(node);
  member.set_local_rank(local);
  member.set_requested_rank(requested_rank + 1);
  return member;
}

std::vector<std::string> Ids(const std::vector<v1::Member>& learners) {
  std::vector<std::string> ids;
  for (const v1::Member& member : learners) ids.push_back(member.id());
  return ids;
}

TEST(RankLearnersTest, FirstGenerationIsContiguousByNode) {
  EXPECT_THAT(
      Ids(RankLearners(
          {Learner(1, 1), Learner(0, 1), Learner(1, 0), Learner(0, 0)}, {})),
      ElementsAre("n0/0", "n0/1", "n1/0", "n1/1"));
}

TEST(RankLearnersTest, RequestedRanksAreHonouredAtTheFirst) {
  EXPECT_THAT(Ids(RankLearners(
                  {Learner(0, 0, 2), Learner(0, 1, 0), Learner(0, 2, 1)}, {})),
              ElementsAre("n0/1", "n0/2", "n0/0"));
}

TEST(RankLearnersTest, WhoAsksForNothingFillsTheGaps) {
  EXPECT_THAT(
      Ids(RankLearners({Learner(0, 0), Learner(0, 1, 0), Learner(0, 2)}, {})),
      ElementsAre("n0/1", "n0/0", "n0/2"));
}

TEST(RankLearnersTest, RequestBeyondASmallWorldIsAnyPlace) {
  EXPECT_THAT(Ids(RankLearners({Learner(0, 0, 3), Learner(0, 1, 0)}, {})),
              ElementsAre("n0/1", "n0/0"));
}

TEST(RankLearnersTest, ReplacementTakesTheFreedPlace) {
  EXPECT_THAT(
      Ids(RankLearners({Learner(0, 0), Learner(0, 1), Learner(0, 2)},
                       {{"n0/0", true}, {"n0/1", false}, {"n0/2", true}})),
      ElementsAre("n0/0", "n0/1", "n0/2"));
}

TEST(RankLearnersTest, StrangerFillsTheGapAndSurvivorsKeepTheirRanks) {
  EXPECT_THAT(
      Ids(RankLearners({Learner(9, 0), Learner(0, 2), Learner(0, 0)},
                       {{"n0/0", true}, {"n0/1", false}, {"n0/2", true}})),
      ElementsAre("n0/0", "n9/0", "n0/2"));
}

TEST(RankLearnersTest, ShrinkingKeepsTheOrderOfSurvivors) {
  EXPECT_THAT(
      Ids(RankLearners(
          {Learner(0, 3), Learner(0, 2), Learner(0, 0)},
          {{"n0/0", true}, {"n0/1", false}, {"n0/2", true}, {"n0/3", true}})),
      ElementsAre("n0/0", "n0/2", "n0/3"));
}

TEST(RankLearnersTest, LosingTheLastRankMovesNobody) {
  EXPECT_THAT(
      Ids(RankLearners({Learner(0, 1), Learner(0, 0)},
                       {{"n0/0", true}, {"n0/1", true}, {"n0/2", false}})),
      ElementsAre("n0/0", "n0/1"));
}

TEST(RankLearnersTest, SurvivorsWinOverWhoAsksForTheirRank) {
  EXPECT_THAT(
      Ids(RankLearners({Learner(0, 0, 1), Learner(0, 1, 0)}, {{"n0/0", true}})),
      ElementsAre("n0/0", "n0/1"));
}

TEST(RankLearnersTest, GrowingAppends) {
  EXPECT_THAT(Ids(RankLearners({Learner(1, 0), Learner(0, 1), Learner(0, 0)},
                               {{"n0/0", true}, {"n0/1", true}})),
              ElementsAre("n0/0", "n0/1", "n1/0"));
}

TEST(RankLearnersTest, CountsTheLearnersOfEachNode) {
  const std::vector<v1::Member> ranked =
      RankLearners({Learner(0, 0), Learner(0, 1), Learner(1, 0)}, {});
  EXPECT_EQ(ranked[0].local_world_size(), 2);
  EXPECT_EQ(ranked[1].local_world_size(), 2);
  EXPECT_EQ(ranked[2].local_world_size(), 1);
}

}  // namespace
}  // namespace flotilla
