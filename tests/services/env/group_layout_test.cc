#include "services/env/group_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

v1::EnvSpec NestedSpec() {
  v1::EnvSpec spec;
  spec.set_env_id("Nested");
  v1::Leaf* leaf = spec.add_observation();
  leaf->set_path("a");
  leaf->set_dtype(v1::UINT8);
  leaf->add_shape(3);
  leaf->add_shape(7);
  leaf = spec.add_observation();
  leaf->set_path("b");
  leaf->set_dtype(v1::FLOAT32);
  leaf = spec.add_observation();
  leaf->set_path("b/c");
  leaf->set_dtype(v1::INT64);
  leaf->add_shape(2);
  leaf = spec.add_action();
  leaf->set_dtype(v1::INT64);
  leaf->set_num_values(4);
  return spec;
}

TEST(GroupLayoutTest, LeavesLieOneAfterAnotherOnCacheLines) {
  ASSERT_OK_AND_ASSIGN(const GroupLayout layout,
                       MakeGroupLayout(NestedSpec(), 10, 2));
  EXPECT_EQ(layout.groups, 2);
  EXPECT_EQ(layout.rows, 5);
  EXPECT_THAT(layout.observation_bytes, ElementsAre(21, 4, 16));
  EXPECT_THAT(layout.action_bytes, ElementsAre(8));
  EXPECT_THAT(layout.slot_offset, ElementsAre(0, 128, 192));
  EXPECT_EQ(layout.slot_bytes, 128u + 64 + 128);
}

TEST(GroupLayoutTest, BadSpecificationsAreRefusedByField) {
  struct Case {
    std::function<void(v1::EnvSpec*)> spoil;
    std::string message;
  };
  const Case cases[] = {
      {[](v1::EnvSpec* s) {
         s->mutable_observation(1)->add_low(
             std::numeric_limits<float>::quiet_NaN());
       },
       "spec.observation[1] (\"b\") has a bound that is nan"},
      {[](v1::EnvSpec* s) {
         s->mutable_observation(1)->add_low(2);
         s->mutable_observation(1)->add_high(1);
       },
       "spec.observation[1] (\"b\").low is 2 and .high 1 in element 0"},
      {[](v1::EnvSpec* s) { s->mutable_action(0)->add_num_values_each(-3); },
       "num_values_each has a -3"},
      {[](v1::EnvSpec* s) {
         for (int i = 0; i < 65; ++i) s->add_episode_metric("m");
       },
       "spec.episode_metric has 65 names, want at most 64"},
      {[](v1::EnvSpec* s) { s->clear_observation(); },
       "spec.observation is empty"},
      {[](v1::EnvSpec* s) { s->clear_action(); }, "spec.action is empty"},
      {[](v1::EnvSpec* s) { s->mutable_observation(1)->clear_dtype(); },
       "spec.observation[1] (\"b\").dtype is 0"},
      {[](v1::EnvSpec* s) { s->mutable_observation(0)->set_shape(1, 0); },
       "has a dimension of 0"},
      {[](v1::EnvSpec* s) { s->mutable_observation(0)->set_shape(1, -3); },
       "has a dimension of -3"},
      {[](v1::EnvSpec* s) {
         for (int i = 0; i < 9; ++i) s->mutable_action(0)->add_shape(1 << 24);
       },
       "spec.action[0] (\"\") has more than"},
      {[](v1::EnvSpec* s) { s->mutable_observation(2)->set_path("b"); },
       "want paths sorted and distinct"},
      {[](v1::EnvSpec* s) {
         s->mutable_observation(2)->add_low(0);
         s->mutable_observation(2)->add_low(0);
         s->mutable_observation(2)->add_low(0);
       },
       "spec.observation[2] (\"b/c\").low has 3 values, want one for each of "
       "2"},
      {[](v1::EnvSpec* s) {
         s->mutable_observation(2)->add_num_values_each(1);
       },
       "num_values_each has 1 values"},
      {[](v1::EnvSpec* s) { s->mutable_action(0)->set_num_values(-1); },
       "num_values -1"},
      {[](v1::EnvSpec* s) { s->mutable_observation(0)->set_frame_stack(-1); },
       "frame_stack -1"},
  };
  for (const Case& c : cases) {
    v1::EnvSpec spec = NestedSpec();
    c.spoil(&spec);
    EXPECT_THAT(
        MakeGroupLayout(spec, 2, 1),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message)));
  }
}

TEST(GroupLayoutTest, GroupsHaveWholeEnvironments) {
  v1::EnvSpec spec = NestedSpec();
  EXPECT_EQ(MakeGroupLayout(spec, 9, 1)->agents, 1);
  spec.set_agents(3);
  ASSERT_OK_AND_ASSIGN(const GroupLayout layout, MakeGroupLayout(spec, 18, 2));
  EXPECT_EQ(layout.agents, 3);
  EXPECT_EQ(layout.rows, 9);
  EXPECT_EQ(layout.environments(), 3);
  for (const auto& [rows, groups, message] :
       {std::tuple(20, 2,
                   "num_envs is 20 in 2 groups, and \"Nested\" has 3 "
                   "agents: use 18 or 24"),
        std::tuple(2, 1, "use 3"), std::tuple(4, 4, "use 12")}) {
    EXPECT_THAT(
        MakeGroupLayout(spec, rows, groups),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  }
  for (const int agents : {-1, 1025}) {
    spec.set_agents(agents);
    EXPECT_THAT(MakeGroupLayout(spec, 1025, 1),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("spec.agents is ", agents,
                                                ", want 1 to 1024"))));
  }
}

TEST(GroupLayoutTest, GroupThatDoesNotFitIntoAMessageSaysHowManyRowsWould) {
  v1::EnvSpec spec = NestedSpec();
  spec.mutable_observation(0)->set_shape(0, 1 << 20);
  EXPECT_OK(MakeGroupLayout(spec, 8, 2));
  EXPECT_THAT(MakeGroupLayout(spec, 8, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("at most 4 rows a group")));
}

TEST(GroupLayoutTest, ActionsOfAllLeavesFitIntoAMessage) {
  v1::EnvSpec spec = NestedSpec();
  spec.clear_action();
  for (const char* path : {"a", "b", "c"}) {
    v1::Leaf* leaf = spec.add_action();
    leaf->set_path(path);
    leaf->set_dtype(v1::FLOAT32);
    leaf->add_shape(1 << 20);
  }
  EXPECT_OK(MakeGroupLayout(spec, 10, 2));
  EXPECT_THAT(MakeGroupLayout(spec, 12, 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("actions for a group of 6 rows of 12582912 "
                                 "bytes do not fit into a message of 67108864 "
                                 "bytes; have more groups or workers, at most "
                                 "5 rows a group")));
}

TEST(GroupLayoutTest, StreamThatNeedsTooMuchMemoryIsRefused) {
  v1::EnvSpec spec = NestedSpec();
  spec.mutable_observation(0)->set_shape(0, 1 << 20);  // 7 MiB a row
  EXPECT_OK(MakeGroupLayout(spec, 128, 128));
  EXPECT_THAT(MakeGroupLayout(spec, 160, 160),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("have more workers")));
}

template <typename T>
v1::ActionBatch Actions(const std::vector<T>& values) {
  v1::ActionBatch actions;
  actions.add_action(std::string(reinterpret_cast<const char*>(values.data()),
                                 values.size() * sizeof(T)));
  return actions;
}

absl::Status Check(const v1::EnvSpec& spec, const v1::ActionBatch& actions,
                   const std::string& active = "") {
  const auto layout = MakeGroupLayout(spec, 2, 1);
  if (!layout.ok()) return layout.status();
  v1::StepBatch step;
  step.set_active(active);
  return CheckActions(spec, *layout, step, actions);
}

TEST(CheckActionsTest, ContinuousActionsAreFiniteAndInBounds) {
  v1::EnvSpec spec = NestedSpec();
  v1::Leaf* leaf = spec.mutable_action(0);
  leaf->Clear();
  leaf->set_dtype(v1::FLOAT32);
  leaf->add_shape(2);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_OK(Check(spec, Actions<float>({-1e30f, 0, 1, 1e30f})));
  EXPECT_THAT(Check(spec, Actions<float>({0, 0, 0, kNan})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is nan in row 1, element 1, want a finite")));
  EXPECT_THAT(Check(spec, Actions<float>({kInfinity, 0, 0, 0})),
              StatusIs(absl::StatusCode::kInvalidArgument));
  leaf->add_low(-1);
  leaf->add_low(-2);
  leaf->add_high(1);
  EXPECT_OK(Check(spec, Actions<float>({-1, -2, 1, 1})));
  EXPECT_THAT(Check(spec, Actions<float>({-1.5f, 0, 0, 0})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is -1.5 in row 0, element 0, want a finite "
                                 "number from -1 to 1")));
  EXPECT_THAT(Check(spec, Actions<float>({0, 0, 0, 1.01f})),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(CheckActionsTest, MultiDiscreteActionsHaveARangeEach) {
  v1::EnvSpec spec = NestedSpec();
  v1::Leaf* leaf = spec.mutable_action(0);
  leaf->clear_num_values();
  leaf->add_shape(2);
  leaf->add_num_values_each(2);
  leaf->add_num_values_each(5);
  EXPECT_OK(Check(spec, Actions<int64_t>({1, 4, 0, 0})));
  EXPECT_THAT(Check(spec, Actions<int64_t>({0, 0, 2, 0})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is 2 in row 1, element 0, want 0 to 1")));
}

TEST(CheckActionsTest, WhatRowsThatAreNotActiveAreSentDoesNotMatter) {
  v1::EnvSpec spec = NestedSpec();
  const std::string second("\0\1", 2), both("\1\1");
  EXPECT_OK(Check(spec, Actions<int64_t>({-7, 3}), second));
  EXPECT_THAT(Check(spec, Actions<int64_t>({-7, 3}), both),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is -7 in row 0, want 0 to 3")));
  EXPECT_THAT(Check(spec, Actions<int64_t>({0, 4}), second),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is 4 in row 1, want 0 to 3")));
  // They are sent all the same.
  EXPECT_THAT(Check(spec, Actions<int64_t>({0}), second),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has 8 bytes, want 16")));
  spec.mutable_action(0)->set_dtype(v1::FLOAT32);
  spec.mutable_action(0)->clear_num_values();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_OK(Check(spec, Actions<float>({kNan, 0}), second));
  EXPECT_THAT(Check(spec, Actions<float>({0, kNan}), second),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(CheckActionsTest, BytesAreDiscreteToo) {
  v1::EnvSpec spec = NestedSpec();
  spec.mutable_action(0)->set_dtype(v1::UINT8);
  EXPECT_OK(Check(spec, Actions<uint8_t>({3, 0})));
  EXPECT_THAT(Check(spec, Actions<uint8_t>({3, 200})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is 200 in row 1")));
}

}  // namespace
}  // namespace flotilla
