#include "services/env/encoder_plan.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const char* const kVector =
    "observation { path: 'vec' dtype: FLOAT32 shape: 3 } ";
const char* const kFrames =
    "observation { path: 'rgb' dtype: UINT8 shape: [84, 80, 3] } ";
const char* const kSmall =
    "observation { path: 'map' dtype: UINT8 shape: [20, 24] } ";
const char* const kChoice =
    "observation { path: 'cell' dtype: INT64 shape: 2 num_values: 10 } ";
const char* const kMask =
    "observation { path: 'mask' dtype: UINT8 shape: 4 } "
    "action_mask_path: 'mask' ";

struct Planned {
  Spaces spaces;
  EncoderPlan plan;
};

absl::StatusOr<Planned> Plan(const std::string& observation,
                             const std::string& model = "") {
  v1::EnvSpec spec;
  v1::ModelConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      observation + "action { dtype: INT64 num_values: 4 }", &spec));
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(model, &config));
  Planned planned;
  ASSIGN_OR_RETURN(planned.spaces, DescribeSpaces(spec, config));
  ASSIGN_OR_RETURN(planned.plan, PlanEncoders(planned.spaces, config));
  return planned;
}

// "rgb: NATURE_CNN [512]; vec: MLP [] -> [64]" where a trunk follows.
std::string Text(const absl::StatusOr<Planned>& planned) {
  if (!planned.ok()) return planned.status().ToString();
  std::vector<std::string> leaves;
  for (const LeafEncoder& e : planned->plan.leaf) {
    leaves.push_back(absl::StrCat(planned->spaces.observation[e.leaf].path,
                                  ": ", v1::Encoder_Name(e.encoder), " [",
                                  absl::StrJoin(e.hidden, " "), "]"));
  }
  const std::vector<int64_t>& trunk = planned->plan.trunk;
  EXPECT_EQ(planned->plan.merged(), !trunk.empty());
  return absl::StrCat(absl::StrJoin(leaves, "; "), trunk.empty() ? "" : " -> [",
                      absl::StrJoin(trunk, " "), trunk.empty() ? "" : "]");
}

TEST(EncoderPlanTest, OneLeafIsAllThereIs) {
  const struct {
    std::string observation, model, plan;
  } cases[] = {
      {kVector, "", "vec: MLP [64 64]"},
      {kVector, "encoder: MLP hidden: 7", "vec: MLP [7]"},
      {kVector, "leaf { path: 'vec' hidden: [8, 9] } hidden: 7",
       "vec: MLP [8 9]"},
      {kFrames, "", "rgb: NATURE_CNN [512]"},
      {kFrames, "encoder: RESNET", "rgb: RESNET [256]"},
      {kFrames, "encoder: RESNET hidden: 30", "rgb: RESNET [30]"},
      {kFrames, "leaf { path: 'rgb' encoder: RESNET hidden: 20 } hidden: 30",
       "rgb: RESNET [20]"},
      {kFrames, "encoder: MLP hidden: 30", "rgb: MLP [30]"},
      {kSmall, "", "map: RESNET [256]"},
      {kVector + std::string(kMask), "", "vec: MLP [64 64]"},
      {kMask + std::string(kSmall), "encoder: RESNET", "map: RESNET [256]"},
      {kMask + std::string(kFrames), "encoder: MLP", "rgb: MLP [64 64]"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Text(Plan(c.observation, c.model)), c.plan)
        << c.observation << c.model;
  }
  // Vectors that are joined are one.
  EXPECT_EQ(Text(Plan(kChoice + std::string(kVector))), "vector: MLP [64 64]");
}

TEST(EncoderPlanTest, SeveralLeavesAreMerged) {
  const std::string vector = kVector, frames = kFrames, small = kSmall,
                    choice = kChoice;
  const struct {
    std::string observation, model, plan;
  } cases[] = {
      {frames + vector, "", "vec: MLP []; rgb: NATURE_CNN [512] -> [512]"},
      {frames + vector, "hidden: [9, 8]",
       "vec: MLP []; rgb: NATURE_CNN [512] -> [9 8]"},
      {frames + small, "", "rgb: NATURE_CNN [512]; map: RESNET [256] -> [512]"},
      // The model's encoder is that of images; there is none for what is beside.
      {frames + vector, "encoder: RESNET",
       "vec: MLP []; rgb: RESNET [256] -> [512]"},
      {frames + vector, "encoder: MLP",
       "vec: MLP []; rgb: NATURE_CNN [512] -> [512]"},
      {frames + vector, "leaf { path: 'vec' hidden: [5, 6] }",
       "rgb: NATURE_CNN [512]; vec: MLP [5 6] -> [512]"},
      {frames + vector, "leaf { path: 'rgb' encoder: MLP hidden: 5 }",
       "vec: MLP []; rgb: MLP [5] -> [64 64]"},
      {frames + small, "leaf { path: 'rgb' encoder: RESNET hidden: 3 }",
       "rgb: RESNET [3]; map: RESNET [256] -> [512]"},
      {choice, "leaf { path: 'cell' encoder: EMBEDDING }",
       "cell: EMBEDDING [64] -> [64 64]"},
      {choice, "encoder: EMBEDDING hidden: 9", "cell: EMBEDDING [64] -> [9]"},
      {choice + vector,
       "leaf { path: 'cell' encoder: EMBEDDING hidden: [4, 5] }",
       "vec: MLP []; cell: EMBEDDING [4 5] -> [64 64]"},
      {choice + frames + vector, "leaf { path: 'cell' encoder: EMBEDDING }",
       "vec: MLP []; cell: EMBEDDING [64]; rgb: NATURE_CNN [512] -> [512]"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Text(Plan(c.observation, c.model)), c.plan)
        << c.observation << c.model;
  }
}

TEST(EncoderPlanTest, WhatNoLeafReadsIsRefused) {
  const std::string vector = kVector, frames = kFrames, choice = kChoice;
  const std::string embedded = "leaf { path: 'cell' encoder: EMBEDDING } ";
  const struct {
    std::string observation, model, words;
  } cases[] = {
      {choice + vector, embedded + "encoder: RESNET",
       "model.encoder is RESNET, which no leaf"},
      {frames + vector,
       "leaf { path: 'rgb' encoder: RESNET conv_channels: [4, 5, 6] }",
       "conv_channels, which RESNET does not read"},
      {frames + vector, "leaf { path: 'rgb' hidden: [3, 4] }",
       "has 2 widths; NATURE_CNN takes one"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Text(Plan(c.observation, c.model)), testing::HasSubstr(c.words))
        << c.observation << c.model;
  }
  EXPECT_EQ(Text(Plan(choice + vector, embedded + "encoder: MLP")),
            "vec: MLP []; cell: EMBEDDING [64] -> [64 64]");
}

TEST(EncoderPlanTest, ConvolutionsHaveTheWidthsOfTheirLeafOrTheModel) {
  const std::string two = absl::StrCat(
      kFrames, "observation { path: 'top' dtype: UINT8 shape: [40, 40] } ");
  ASSERT_OK_AND_ASSIGN(const Planned planned,
                       Plan(two,
                            "conv_channels: [4, 5, 6] "
                            "leaf { path: 'top' conv_channels: [7, 8, 9] }"));
  ASSERT_THAT(planned.plan.leaf, SizeIs(2));
  EXPECT_THAT(planned.plan.leaf[0].channels, ElementsAre(4, 5, 6));
  EXPECT_THAT(planned.plan.leaf[1].channels, ElementsAre(7, 8, 9));
  ASSERT_OK_AND_ASSIGN(const Planned plain, Plan(kFrames));
  EXPECT_THAT(plain.plan.leaf[0].channels, ElementsAre(32, 64, 64));
  EXPECT_THAT(plain.plan.trunk, IsEmpty());
}

TEST(EncoderPlanTest, WidthsFollowFromShapesAndStacks) {
  // 84: 20, 9, 7; 80: 19, 8, 6.
  EXPECT_EQ(NatureCnnOut(84), 7);
  EXPECT_EQ(NatureCnnOut(80), 6);
  EXPECT_EQ(NatureCnnOut(36), 1);
  EXPECT_LT(NatureCnnOut(35), 1);
  for (int64_t size = 0; size < 200; ++size) {
    EXPECT_EQ(NatureCnnOut(size) >= 1, size >= 36) << size;
  }
  const auto widths = [](const std::string& observation,
                         const std::string& model) {
    const absl::StatusOr<Planned> planned = Plan(observation, model);
    EXPECT_OK(planned);
    const LeafEncoder& e = planned->plan.leaf.back();
    const LeafSpec& leaf = planned->spaces.observation[e.leaf];
    return std::vector<int64_t>{FlatWidth(leaf, e), EncodedWidth(leaf, e)};
  };
  EXPECT_THAT(widths(kFrames, ""), ElementsAre(64 * 7 * 6, 512));
  EXPECT_THAT(widths(kFrames, "conv_channels: [1, 2, 3] hidden: 8"),
              ElementsAre(3 * 7 * 6, 8));
  // Halved three times, rounded up: 20, 10, 5, 3 and 24, 12, 6, 3.
  EXPECT_THAT(widths(kSmall, "hidden: 8"), ElementsAre(32 * 3 * 3, 8));
  EXPECT_THAT(widths(kVector, ""), ElementsAre(3, 64));
  const std::string choice = kChoice;
  EXPECT_THAT(widths(choice, "leaf { path: 'cell' encoder: EMBEDDING }"),
              ElementsAre(2 * 64, 2 * 64));
  EXPECT_THAT(widths(choice,
                     "leaf { path: 'cell' encoder: EMBEDDING hidden: [4, 5] "
                     "frame_stack: 3 }"),
              ElementsAre(3 * 2 * 4, 5));
  EXPECT_THAT(widths(choice, "leaf { path: 'cell' frame_stack: 3 hidden: 6 }"),
              ElementsAre(3 * 20, 6));
  EXPECT_THAT(widths(kFrames + choice, "leaf { path: 'cell' frame_stack: 3 }"),
              ElementsAre(3 * 20, 3 * 20));
}

TEST(EncoderPlanTest, WhatDoesNotFitIsRefusedByName) {
  const std::string vector = kVector, frames = kFrames, small = kSmall,
                    choice = kChoice;
  const struct {
    std::string observation, model, words;
  } cases[] = {
      {vector, "encoder: NATURE_CNN",
       "observation \"vec\": encoder NATURE_CNN does not fit a vector; use "
       "MLP"},
      {vector, "encoder: RESNET", "encoder RESNET does not fit a vector"},
      {"observation { dtype: FLOAT32 shape: 3 } ", "encoder: RESNET",
       "the observation: encoder RESNET does not fit a vector; use MLP or "
       "leave "
       "it out"},
      {small, "encoder: NATURE_CNN",
       "observation \"map\": frames of 20 x 24 are too small for NATURE_CNN; "
       "it "
       "needs 36 x 36, RESNET takes any size"},
      {small + vector, "leaf { path: 'map' encoder: NATURE_CNN }",
       "observation \"map\": frames of 20 x 24 are too small for NATURE_CNN"},
      {"observation { path: 'x' dtype: UINT8 shape: [40, 35] } ",
       "encoder: NATURE_CNN", "frames of 40 x 35 are too small"},
      {frames + vector, "encoder: EMBEDDING",
       "observation \"rgb\": encoder EMBEDDING does not fit frames; use "
       "NATURE_CNN or RESNET"},
      {frames, "conv_channels: [4, 5]",
       "observation \"rgb\": conv_channels has 2 values, want the widths of "
       "three convolutions"},
      {frames, "leaf { path: 'rgb' conv_channels: [4, 5, 6, 7] }",
       "conv_channels has 4 values"},
      {vector, "encoder: EMBEDDING", "(FLOAT32 [3]) has no discrete values"},
      // Of joined leaves nobody is embedded by the model's encoder.
      {choice + vector, "encoder: EMBEDDING", "EMBEDDING"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(
        Plan(c.observation, c.model),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.words)))
        << c.observation << c.model;
  }
}

TEST(EncoderPlanTest, ANetworkOfOnesOwnEncodesAsItLikes) {
  ASSERT_OK_AND_ASSIGN(
      const Planned planned,
      Plan(absl::StrCat(kSmall, kVector),
           "torchscript: 'net.pt' leaf { path: 'map' encoder: NATURE_CNN }"));
  ASSERT_THAT(planned.plan.leaf, SizeIs(2));
  EXPECT_FALSE(planned.plan.merged());
  for (const LeafEncoder& encoder : planned.plan.leaf) {
    EXPECT_EQ(encoder.encoder, v1::MLP);
    EXPECT_THAT(encoder.hidden, IsEmpty());
  }
}

}  // namespace
}  // namespace flotilla
