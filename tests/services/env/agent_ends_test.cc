#include "services/env/agent_ends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::HasSubstr;

// Two environments of two agents.
class AgentEndsTest : public testing::Test {
 protected:
  static GroupLayout Layout() {
    GroupLayout layout;
    layout.rows = 4;
    layout.agents = 2;
    return layout;
  }

  // Each of "01" [R]; `others`: rows with an EpisodeEnd that says so, or not.
  v1::StepBatch Step(const std::string& terminated, const std::string& active) {
    v1::StepBatch step;
    step.set_truncated(std::string(4, '\0'));
    for (const char c : terminated)
      step.mutable_terminated()->push_back(c - '0');
    for (const char c : active) step.mutable_active()->push_back(c - '0');
    return step;
  }
  static void AddEnd(v1::StepBatch* step, int row, bool others_play_on) {
    step->add_episode_end()->set_row(row);
    step->mutable_episode_end(step->episode_end_size() - 1)
        ->set_others_play_on(others_play_on);
  }

  AgentEnds ends_{Layout()};
};

TEST_F(AgentEndsTest, EnvironmentsEndWhenAllAgentsHave) {
  for (int episode = 0; episode < 3; ++episode) {
    EXPECT_OK(ends_.Take(Step("0000", "1010")));
    v1::StepBatch first = Step("1000", "0111");
    AddEnd(&first, 0, true);
    EXPECT_OK(ends_.Take(first));
    EXPECT_OK(ends_.Take(Step("0000", "0111")));
    v1::StepBatch both = Step("0111", "");
    for (const int row : {1, 2, 3}) AddEnd(&both, row, false);
    EXPECT_OK(ends_.Take(both));
  }
}

TEST_F(AgentEndsTest, WhoIsGoneNeitherEndsNorDecides) {
  EXPECT_OK(ends_.Take(Step("0010", "1101")));
  AgentEnds again = ends_;
  EXPECT_THAT(again.Take(Step("0010", "1101")),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("in row 2 is 1 again, want one end")));
  AgentEnds active = ends_;
  EXPECT_THAT(active.Take(Step("0000", "")),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("step.active of group 0, seq 0 in row 2 is "
                                 "1, and its episode has ended")));
  // What fails begins anew, for everybody in it.
  v1::StepBatch failed = Step("0000", "");
  for (const int row : {2, 3}) failed.add_error()->set_row(row);
  EXPECT_OK(ends_.Take(failed));
  EXPECT_OK(ends_.Take(Step("0010", "1101")));
}

TEST_F(AgentEndsTest, OthersPlayOnIsWhatTheFlagsSay) {
  for (const bool all : {true, false}) {
    v1::StepBatch step = Step(all ? "1100" : "1000", all ? "" : "0111");
    AddEnd(&step, 0, all);
    AgentEnds ends(Layout());
    EXPECT_THAT(ends.Take(step),
                StatusIs(absl::StatusCode::kInternal,
                         HasSubstr(all ? "in row 0 is true, and every slot's"
                                       : "in row 0 is false, and not every")));
  }
}

}  // namespace
}  // namespace flotilla
