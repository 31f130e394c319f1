// Environments of several agents, whose slots are rows.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "envserver/thread_vector_env.h"
#include "services/base/random.h"
#include "tests/envserver/vector_env_rig.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// What happens in a fake environment of three agents, by the number of its step.
struct TeamPlan {
  int64_t limit = 0;
  std::map<int, std::vector<Outcome>> outcome;  // else its action, if it acted
  std::map<int, std::vector<int>> active;       // 0: the reset
  std::map<int, std::vector<int>> acted;        // what it was told
  std::set<int> failure;
  int resets = 0;
};

// Each sees the seed, and ten times the step plus its slot.
class Team final : public MultiAgentEnvironment {
 public:
  explicit Team(TeamPlan* plan) : plan_(*plan) {
    spec_.set_env_id("Team");
    spec_.set_agents(3);
    v1::Leaf* leaf = spec_.add_observation();
    leaf->set_path("seed");
    leaf->set_dtype(v1::INT64);
    leaf = spec_.add_observation();
    leaf->set_path("step");
    leaf->set_dtype(v1::UINT8);
    leaf = spec_.add_action();
    leaf->set_dtype(v1::INT64);
    leaf->set_num_values(10);
    spec_.set_max_episode_steps(plan->limit);
  }

  const v1::EnvSpec& spec() const override { return spec_; }

  absl::Status ResetSlots(uint64_t seed, std::span<Slot> slots) override {
    ++plan_.resets;
    seed_ = seed;
    step_ = 0;
    Observe(slots);
    return absl::OkStatus();
  }

  absl::Status StepSlots(std::span<Slot> slots) override {
    ++step_;
    if (plan_.failure.contains(step_)) return absl::InternalError("failed");
    plan_.acted[step_].clear();
    for (size_t s = 0; s < slots.size(); ++s) {
      Slot& slot = slots[s];
      plan_.acted[step_].push_back(slot.acted ? 1 : 0);
      if (plan_.outcome.contains(step_)) {
        slot.outcome = plan_.outcome[step_][s];
      } else if (slot.acted) {
        slot.outcome.reward =
            static_cast<float>(ReadValue<int64_t>(slot.action[0]));
      }
    }
    Observe(slots);
    return absl::OkStatus();
  }

  bool SlotGameOver(size_t slot, v1::EpisodeEnd* end) override {
    (*end->mutable_metric())["slot"] = static_cast<double>(slot);
    return true;
  }

 private:
  void Observe(std::span<Slot> slots) const {
    for (size_t s = 0; s < slots.size(); ++s) {
      if (plan_.active.contains(step_)) {
        slots[s].active = plan_.active[step_][s] == 1;
      }
      WriteValue(slots[s].observation[0], 0, static_cast<int64_t>(seed_));
      WriteValue(slots[s].observation[1], 0,
                 static_cast<uint8_t>(10 * step_ + static_cast<int>(s)));
    }
  }

  TeamPlan& plan_;
  v1::EnvSpec spec_;
  uint64_t seed_ = 0;
  int step_ = 0;
};

Rig TeamRig(TeamPlan* plan, ThreadVectorEnv::Options options) {
  return Rig(options, [plan] { return std::make_unique<Team>(plan); });
}

// "ROW: return RETURN of LENGTH" and whether others play on.
std::vector<std::string> Ends(const v1::StepBatch& step) {
  std::vector<std::string> ends;
  for (const v1::EpisodeEnd& end : step.episode_end()) {
    ends.push_back(absl::StrCat(end.row(), ": return ", end.raw_return(),
                                " of ", end.length(),
                                end.others_play_on() ? ", others play on" : "",
                                ", slot ", end.metric().at("slot")));
  }
  return ends;
}

TEST(ThreadVectorEnvAgentsTest, SlotsOfOneEnvironmentAreItsRows) {
  TeamPlan plan;
  Rig rig = TeamRig(&plan, {.num_envs = 6, .num_groups = 1, .seed = 4});
  const v1::StepBatch& step = rig.Reset();
  EXPECT_EQ(plan.resets, 2);
  for (int row = 0; row < 6; ++row) {
    // The seed is that of its first row.
    EXPECT_EQ(rig.Observed<uint64_t>(0, row),
              EpisodeSeed(4, 0, row < 3 ? 0 : 3, 0, 0));
    EXPECT_EQ(rig.Observed<uint8_t>(1, row), row % 3);
  }
  rig.Step(7);
  EXPECT_THAT(Rewards(step), ElementsAre(7, 7, 7, 7, 7, 7));
  EXPECT_EQ(rig.Observed<uint8_t>(1, 5), 12);
  EXPECT_EQ(step.active(), "");  // all are
}

TEST(ThreadVectorEnvAgentsTest, RowsThatMakeNoEnvironmentsAreRefused) {
  Completions done;
  TeamPlan plan;
  EXPECT_THAT(ThreadVectorEnv::Make(
                  {.num_envs = 4, .num_groups = 1},
                  [&] { return std::make_unique<Team>(&plan); }, &done),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("\"Team\" has 3 agents: use 3 or 6")));
}

TEST(ThreadVectorEnvAgentsTest, TurnsAreSaidAndLengthsCountDecisions) {
  TeamPlan plan;
  plan.limit = 4;
  plan.active = {{0, {0, 1, 0}}, {1, {1, 0, 1}}, {2, {0, 0, 0}}};
  Rig rig = TeamRig(&plan, {.num_envs = 3});
  const v1::StepBatch& step = rig.Reset();
  EXPECT_THAT(Flags(step.active()), ElementsAre(0, 1, 0));
  rig.Step(5);
  EXPECT_THAT(plan.acted[1], ElementsAre(0, 1, 0));
  EXPECT_THAT(Rewards(step), ElementsAre(0, 5, 0));
  EXPECT_THAT(Flags(step.active()), ElementsAre(1, 0, 1));
  rig.Step(6);
  EXPECT_THAT(Flags(step.active()), ElementsAre(0, 0, 0));
  rig.Step(7);
  EXPECT_THAT(plan.acted[3], ElementsAre(0, 0, 0));
  EXPECT_EQ(step.active(), "");
  // The limit is of the environment's steps, and ends everybody's episode.
  rig.Step(8);
  EXPECT_THAT(Flags(step.truncated()), ElementsAre(1, 1, 1));
  EXPECT_THAT(Ends(step), ElementsAre("0: return 14 of 2, slot 0",
                                      "1: return 13 of 2, slot 1",
                                      "2: return 14 of 2, slot 2"));
  EXPECT_EQ(step.final_observation().leaf(1), "\x28\x29\x2a");
  EXPECT_THAT(Flags(step.active()), ElementsAre(0, 1, 0));  // the next one's
}

TEST(ThreadVectorEnvAgentsTest, SlotsEndAloneAndTheEnvironmentOnceAllHave) {
  TeamPlan plan;
  plan.limit = 3;
  plan.outcome[1] = {{.reward = 1}, {.reward = 2, .terminated = true}, {}};
  // What is said of a slot that has ended is not read.
  plan.outcome[2] = {
      {.terminated = true}, {.reward = 99, .terminated = true}, {}};
  Rig rig = TeamRig(&plan, {.num_envs = 3, .num_groups = 1, .seed = 5});
  const v1::StepBatch& step = rig.Reset();
  rig.Step(4);
  EXPECT_THAT(Flags(step.terminated()), ElementsAre(0, 1, 0));
  EXPECT_THAT(step.final_row(), ElementsAre(1));
  EXPECT_EQ(step.final_observation().leaf(1), "\x0b");
  EXPECT_THAT(Flags(step.active()), ElementsAre(1, 0, 1));
  EXPECT_EQ(rig.Observed<uint8_t>(1, 1), 0);
  EXPECT_THAT(Ends(step),
              ElementsAre("1: return 2 of 1, others play on, slot 1"));
  rig.Step(4);
  EXPECT_THAT(plan.acted[2], ElementsAre(1, 0, 1));
  EXPECT_THAT(Flags(step.terminated()), ElementsAre(1, 0, 0));
  EXPECT_THAT(Rewards(step), ElementsAre(0, 0, 0));
  EXPECT_THAT(step.final_row(), ElementsAre(0));
  EXPECT_THAT(Flags(step.active()), ElementsAre(0, 0, 1));
  EXPECT_THAT(Ends(step),
              ElementsAre("0: return 1 of 2, others play on, slot 0"));
  EXPECT_EQ(plan.resets, 1);
  rig.Step(4);
  EXPECT_THAT(Flags(step.truncated()), ElementsAre(0, 0, 1));
  EXPECT_THAT(step.final_row(), ElementsAre(2));
  EXPECT_THAT(Ends(step), ElementsAre("2: return 4 of 3, slot 2"));
  EXPECT_EQ(plan.resets, 2);
  EXPECT_EQ(step.active(), "");
  for (int row = 0; row < 3; ++row) {
    EXPECT_EQ(rig.Observed<uint8_t>(1, row), row);
    EXPECT_EQ(rig.Observed<uint64_t>(0, row), EpisodeSeed(5, 0, 0, 0, 1));
  }
}

TEST(ThreadVectorEnvAgentsTest, EnvironmentsFailWithAllTheirSlots) {
  TeamPlan plan;
  plan.outcome[1] = {{}, {.terminated = true}, {}};
  plan.failure = {2};
  Rig rig = TeamRig(&plan, {.num_envs = 3});
  const v1::StepBatch& step = rig.Reset();
  rig.Step(4);
  rig.Step(4);
  ASSERT_EQ(step.error_size(), 3);
  EXPECT_THAT(step.error(0).message(),
              HasSubstr("env \"Team\", row 0: failed"));
  for (int row = 0; row < 3; ++row) {
    EXPECT_EQ(step.error(row).row(), row);
    EXPECT_EQ(step.error(row).message().empty(), row > 0);
    EXPECT_EQ(rig.Observed<uint8_t>(1, row), row);  // begun anew
  }
  EXPECT_THAT(Rewards(step), ElementsAre(0, 0, 0));
  EXPECT_THAT(step.episode_end(), IsEmpty());
  EXPECT_EQ(step.active(), "");
  plan.failure.clear();
  plan.outcome.clear();
  rig.Step(4);
  EXPECT_THAT(plan.acted[1], ElementsAre(1, 1, 1));
  EXPECT_THAT(step.error(), IsEmpty());
}

}  // namespace
}  // namespace flotilla
