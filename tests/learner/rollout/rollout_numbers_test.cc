#include "learner/rollout/rollout_numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

// Of four stacked frames, three lie ahead of step 0.
TEST(RolloutNumbersTest, StepsOfAStackedLeafAreThoseOfTheRollout) {
  v1::ModelConfig model;
  v1::LeafConfig* leaf = model.add_leaf();
  leaf->set_path("");
  leaf->set_frame_stack(4);
  v1::EnvSpec spec = OneLeafSpec(v1::FLOAT32, {3});
  spec.add_action()->set_num_values(2);
  spec.mutable_action(0)->set_dtype(v1::INT64);
  const Spaces spaces = DescribeSpaces(spec, model).value();
  ASSERT_EQ(spaces.max_stack(), 4);
  Rollout r = MakeRollout(spaces, /*length=*/6, /*rows=*/2, /*pinned=*/false);
  for (const torch::Tensor& t :
       {r.reward, r.log_prob, r.value, r.bootstrap_value}) {
    t.zero_();
  }
  EXPECT_NE(DescribeNumbers(r).find("is finite"), std::string::npos);
  r.observation.leaf(0)[3 + 5][1][2] = NAN;
  EXPECT_EQ(DescribeNumbers(r).rfind(
                "the rollout's observation at step 5, row 1 is nan", 0),
            0)
      << DescribeNumbers(r);
  r.observation.leaf(0).zero_();
  r.reward[2][0] = -1e30;
  EXPECT_EQ(
      DescribeNumbers(r).rfind("the rollout's reward at step 2, row 0 is", 0),
      0)
      << DescribeNumbers(r);
}

}  // namespace
}  // namespace flotilla
