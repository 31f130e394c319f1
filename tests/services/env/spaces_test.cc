#include "services/env/spaces.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const char* const kFour = "action { dtype: INT64 num_values: 4 } ";

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message))
      << text;
  return message;
}

absl::StatusOr<Spaces> Describe(const std::string& spec,
                                const std::string& model = "") {
  return DescribeSpaces(Parse<v1::EnvSpec>(spec),
                        Parse<v1::ModelConfig>(model));
}

// Of an observation, with four actions.
Spaces See(const std::string& observation, const std::string& model = "") {
  const absl::StatusOr<Spaces> spaces =
      Describe(absl::StrCat(kFour, observation), model);
  EXPECT_OK(spaces) << observation;
  return spaces.ok() ? *spaces : Spaces();
}

std::string Leaf(const std::string& fields) {
  return absl::StrCat("observation { ", fields, " } ");
}

std::string Array(const std::string& dtype, const std::vector<int>& shape) {
  std::string fields = absl::StrCat("dtype: ", dtype);
  for (const int d : shape) absl::StrAppend(&fields, " shape: ", d);
  return fields;
}

TEST(SpacesTest, ImagesHaveChannelsWhereTheyAre) {
  struct Case {
    std::string dtype;
    std::vector<int> shape;
    std::string model;
    int64_t channels, height, width;
    bool channels_last;
  };
  const std::string asked = "encoder: RESNET";
  const std::string asked_here = "leaf { path: 'x' encoder: RESNET }";
  const Case cases[] = {
      {"UINT8", {84, 80}, "", 1, 84, 80, false},
      {"UINT8", {20, 24}, "", 1, 20, 24, false},
      {"UINT8", {84, 80, 3}, "", 3, 84, 80, true},
      {"UINT8", {3, 84, 80}, "", 3, 84, 80, false},
      {"UINT8", {36, 36, 36}, "", 36, 36, 36, true},
      {"UINT8", {36, 40, 3}, "", 3, 36, 40, true},
      {"UINT8", {20, 24, 3}, asked, 3, 20, 24, true},
      {"UINT8", {20, 24, 3}, asked_here, 3, 20, 24, true},
      {"FLOAT32", {84, 80, 3}, "", 3, 84, 80, true},
      {"FLOAT32", {84, 80}, asked, 1, 84, 80, false},
      {"FLOAT32", {3, 20, 24}, asked_here, 3, 20, 24, false},
  };
  for (const Case& c : cases) {
    const std::string fields = Array(c.dtype, c.shape) + " path: 'x'";
    SCOPED_TRACE(fields + " " + c.model);
    const Spaces spaces = See(Leaf(fields), c.model);
    ASSERT_THAT(spaces.observation, SizeIs(1));
    const LeafSpec& leaf = spaces.observation[0];
    EXPECT_EQ(leaf.path, "x");
    EXPECT_EQ(leaf.kind, LeafKind::kImage);
    EXPECT_EQ(v1::DType_Name(leaf.dtype), c.dtype);
    EXPECT_EQ(leaf.shape, std::vector<int64_t>(c.shape.begin(), c.shape.end()));
    EXPECT_EQ(leaf.channels, c.channels);
    EXPECT_EQ(leaf.height, c.height);
    EXPECT_EQ(leaf.width, c.width);
    EXPECT_EQ(leaf.channels_last, c.channels_last);
    EXPECT_EQ(leaf.stack, 1);
    EXPECT_EQ(leaf.elements(), c.channels * c.height * c.width);
    EXPECT_EQ(leaf.bytes(), leaf.elements() * (c.dtype == "UINT8" ? 1 : 4));
    ASSERT_THAT(leaf.parts, SizeIs(1));
    EXPECT_EQ(leaf.parts[0].elements, leaf.elements());
    EXPECT_EQ(spaces.normalized(), 0);
    EXPECT_EQ(spaces.mask, -1);
  }
}

TEST(SpacesTest, WhatIsNoImageAndNoChoiceIsNumbers) {
  struct Case {
    std::string dtype;
    std::vector<int> shape;
    std::string model;
  };
  const Case cases[] = {
      {"FLOAT32", {}, ""},
      {"FLOAT32", {3}, ""},
      {"FLOAT32", {84, 84}, ""},
      {"FLOAT32", {35, 84, 3}, ""},
      {"INT64", {84, 84, 3}, ""},
      {"INT64", {84, 84, 3}, "encoder: RESNET"},  // refused with its encoder
      {"UINT8", {128}, ""},
      {"UINT8", {35, 84, 3}, ""},
      {"UINT8", {3, 84, 35}, ""},
      {"UINT8", {2, 40, 40, 3}, ""},
      {"UINT8", {84, 84}, "encoder: MLP"},
      {"UINT8", {84, 84, 3}, "leaf { path: 'x' encoder: MLP }"},
  };
  for (const Case& c : cases) {
    const std::string fields = Array(c.dtype, c.shape) + " path: 'x'";
    SCOPED_TRACE(fields + " " + c.model);
    const Spaces spaces = See(Leaf(fields), c.model);
    ASSERT_THAT(spaces.observation, SizeIs(1));
    const LeafSpec& leaf = spaces.observation[0];
    int64_t n = 1;
    for (const int d : c.shape) n *= d;
    EXPECT_EQ(leaf.path, "x");
    EXPECT_EQ(leaf.kind, LeafKind::kVector);
    EXPECT_EQ(leaf.dtype, v1::FLOAT32);
    EXPECT_THAT(leaf.shape, ElementsAre(n));
    EXPECT_EQ(leaf.numbers, n);
    EXPECT_EQ(spaces.normalized(), n);
    EXPECT_EQ(leaf.bytes(), 4 * n);
    ASSERT_THAT(leaf.parts, SizeIs(1));
    EXPECT_THAT(leaf.parts[0].one_hot, IsEmpty());
    EXPECT_EQ(v1::DType_Name(leaf.parts[0].dtype), c.dtype);
  }
}

TEST(SpacesTest, DiscreteValuesAreOneHotUnlessTheyAreBits) {
  struct Case {
    std::string fields;
    int64_t elements, columns;
    std::vector<int64_t> one_hot;
  };
  const Case cases[] = {
      {"dtype: INT64 num_values: 5", 1, 5, {5}},
      {"dtype: UINT8 num_values: 5 shape: 2", 2, 10, {5, 5}},
      {"dtype: INT64 shape: 3 num_values_each: [2, 3, 7]", 3, 12, {2, 3, 7}},
      {"dtype: UINT8 shape: [2, 2] num_values: 3", 4, 12, {3, 3, 3, 3}},
      {"dtype: INT64 num_values: 2", 1, 1, {}},
      {"dtype: UINT8 shape: 3 num_values: 2", 3, 3, {}},
      {"dtype: INT64 shape: 2 num_values_each: [1, 2]", 2, 2, {}},
      {"dtype: UINT8 shape: [40, 40] num_values: 2", 1600, 1600, {}},
      {"dtype: FLOAT32 shape: 3 num_values: 5", 3, 3, {}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.fields);
    const Spaces spaces = See(Leaf(c.fields));
    ASSERT_THAT(spaces.observation, SizeIs(1));
    const LeafSpec& leaf = spaces.observation[0];
    EXPECT_EQ(leaf.kind, LeafKind::kVector);
    EXPECT_THAT(leaf.shape, ElementsAre(c.columns));
    EXPECT_EQ(leaf.numbers, c.one_hot.empty() ? c.columns : 0);
    ASSERT_THAT(leaf.parts, SizeIs(1));
    EXPECT_EQ(leaf.parts[0].elements, c.elements);
    EXPECT_EQ(leaf.parts[0].columns, c.columns);
    EXPECT_EQ(leaf.parts[0].one_hot, c.one_hot);
  }
}

TEST(SpacesTest, EmbeddedValuesStayIntegers) {
  for (const std::string model :
       {"leaf { path: 'x' encoder: EMBEDDING }", "encoder: EMBEDDING"}) {
    const Spaces spaces =
        See(Leaf("path: 'x' dtype: UINT8 shape: 2 num_values_each: [2, 9000]"),
            model);
    ASSERT_THAT(spaces.observation, SizeIs(1));
    const LeafSpec& leaf = spaces.observation[0];
    EXPECT_EQ(leaf.kind, LeafKind::kDiscrete);
    EXPECT_EQ(leaf.dtype, v1::INT64);
    EXPECT_THAT(leaf.shape, ElementsAre(2));
    EXPECT_THAT(leaf.num_values, ElementsAre(2, 9000));
    EXPECT_EQ(leaf.bytes(), 16);
    EXPECT_EQ(leaf.parts[0].dtype, v1::UINT8);
    EXPECT_EQ(spaces.normalized(), 0);
  }
}

TEST(SpacesTest, WhatIsLeftIsJoinedNumbersFirst) {
  const Spaces spaces =
      See(Leaf("path: 'a' dtype: INT64 num_values: 3") +
          Leaf("path: 'b' dtype: FLOAT32 shape: 2") +
          Leaf("path: 'c' dtype: UINT8 shape: [84, 84]") +
          Leaf("path: 'd' dtype: UINT8 shape: 3") +
          Leaf("path: 'e' dtype: INT64 shape: 2 num_values_each: [4, 2]") +
          Leaf("path: 'f' dtype: INT64 shape: 2 num_values: 2"));
  ASSERT_THAT(spaces.observation, SizeIs(2));
  const LeafSpec& joined = spaces.observation[0];
  EXPECT_EQ(joined.path, "vector");
  EXPECT_EQ(joined.kind, LeafKind::kVector);
  EXPECT_THAT(joined.shape, ElementsAre(16));
  EXPECT_EQ(joined.numbers, 7);
  EXPECT_EQ(spaces.normalized(), 7);
  // leaf, first column, columns
  std::vector<std::vector<int64_t>> parts;
  for (const LeafSpec::Part& part : joined.parts) {
    parts.push_back({part.leaf, part.column, part.columns});
  }
  EXPECT_THAT(parts, ElementsAre(ElementsAre(0, 7, 3), ElementsAre(1, 0, 2),
                                 ElementsAre(3, 2, 3), ElementsAre(4, 10, 6),
                                 ElementsAre(5, 5, 2)));
  EXPECT_EQ(spaces.observation[1].path, "c");
  EXPECT_THAT(spaces.encoded(), ElementsAre(0, 1));
}

// Weights go by these names, and a network of one's own is given them.
TEST(SpacesTest, NoTwoLeavesHaveOneName) {
  const Spaces spaces =
      See(Leaf("path: 'a' dtype: FLOAT32") + Leaf("path: 'b' dtype: FLOAT32") +
          Leaf("path: 'vector' dtype: UINT8 shape: [84, 84]"));
  ASSERT_THAT(spaces.observation, SizeIs(2));
  EXPECT_EQ(spaces.observation[0].path, "vector_");
  EXPECT_EQ(spaces.observation[1].path, "vector");
}

TEST(SpacesTest, OneLeafThatIsLeftKeepsItsName) {
  const Spaces spaces = See(Leaf("path: 'image' dtype: UINT8 shape: [84, 84]") +
                            Leaf("path: 'speed' dtype: FLOAT32"));
  ASSERT_THAT(spaces.observation, SizeIs(2));
  EXPECT_EQ(spaces.observation[0].path, "speed");
  EXPECT_EQ(spaces.observation[1].path, "image");
}

TEST(SpacesTest, ALeafWithItsOwnConfigurationIsItsOwn) {
  const std::string leaves = Leaf("path: 'a' dtype: FLOAT32 shape: 2") +
                             Leaf("path: 'b' dtype: FLOAT32 shape: 3") +
                             Leaf("path: 'c' dtype: INT64 num_values: 4");
  const Spaces spaces = See(leaves, "leaf { path: 'b' hidden: 8 }");
  ASSERT_THAT(spaces.observation, SizeIs(2));
  EXPECT_EQ(spaces.observation[0].path, "vector");
  EXPECT_THAT(spaces.observation[0].shape, ElementsAre(6));
  EXPECT_EQ(spaces.observation[1].path, "b");
  EXPECT_THAT(spaces.observation[1].shape, ElementsAre(3));
  EXPECT_EQ(spaces.normalized(), 2);
  // With none left, the first that is a vector is scaled.
  const Spaces all = See(leaves,
                         "leaf { path: 'c' } leaf { path: 'a' hidden: 8 } "
                         "leaf { path: 'b' }");
  ASSERT_THAT(all.observation, SizeIs(3));
  EXPECT_EQ(all.observation[0].path, "a");
  EXPECT_EQ(all.observation[2].path, "c");
  EXPECT_EQ(all.observation[2].numbers, 0);
  EXPECT_EQ(all.normalized(), 2);
}

TEST(SpacesTest, TheOnlyLeafCanBeNamedByItsEmptyPath) {
  const Spaces spaces = See(Leaf("dtype: UINT8 shape: [20, 24, 3]"),
                            "leaf { path: '' encoder: RESNET }");
  ASSERT_THAT(spaces.observation, SizeIs(1));
  EXPECT_EQ(spaces.observation[0].kind, LeafKind::kImage);
  EXPECT_EQ(LeafTitle(spaces.observation[0]), "the observation");
  LeafSpec named;
  named.path = "rgb";
  EXPECT_EQ(LeafTitle(named), "observation \"rgb\"");
}

TEST(SpacesTest, StacksAreTheEnvironmentsOrTheConfigurations) {
  const std::string leaves =
      Leaf("path: 'a' dtype: FLOAT32 shape: 2 frame_stack: 3") +
      Leaf("path: 'b' dtype: UINT8 shape: [84, 84] frame_stack: 4") +
      Leaf("path: 'c' dtype: FLOAT32 shape: 5") +
      Leaf("path: 'd' dtype: INT64 num_values: 4 frame_stack: 2");
  const Spaces spaces = See(leaves);
  ASSERT_THAT(spaces.observation, SizeIs(4));
  EXPECT_EQ(spaces.observation[0].path, "c");
  EXPECT_EQ(spaces.observation[1].path, "a");
  EXPECT_EQ(spaces.observation[1].stack, 3);
  EXPECT_THAT(spaces.observation[1].shape, ElementsAre(2));
  EXPECT_EQ(spaces.observation[2].stack, 4);
  EXPECT_THAT(spaces.observation[2].shape, ElementsAre(84, 84));
  EXPECT_EQ(spaces.observation[3].stack, 2);
  EXPECT_EQ(spaces.max_stack(), 4);

  const Spaces other =
      See(leaves,
          "leaf { path: 'b' frame_stack: 1 } leaf { path: 'c' frame_stack: 7 } "
          "leaf { path: 'd' encoder: EMBEDDING }");
  ASSERT_THAT(other.observation, SizeIs(4));
  EXPECT_EQ(other.observation[0].stack, 3);  // "a"
  EXPECT_EQ(other.observation[1].stack, 1);  // "b"
  EXPECT_EQ(other.observation[2].stack, 7);  // "c"
  EXPECT_EQ(other.observation[3].stack, 2);  // "d"
  EXPECT_EQ(other.observation[3].kind, LeafKind::kDiscrete);
  EXPECT_EQ(other.max_stack(), 7);
  // What is stacked is not scaled: its columns come more than once.
  EXPECT_EQ(other.normalized(), 0);
}

TEST(SpacesTest, ActionsAreChoicesAndThenValues) {
  ASSERT_OK_AND_ASSIGN(
      const Spaces spaces,
      Describe(Leaf("dtype: FLOAT32") +
               "action { path: 'a' dtype: FLOAT32 shape: 2 low: -1 "
               "         high: [1, 2] }"
               "action { path: 'b' dtype: INT64 num_values: 5 }"
               "action { path: 'c' dtype: FLOAT32 }"
               "action { path: 'd' dtype: UINT8 shape: 3 num_values: 2 }"
               "action { path: 'e' dtype: INT64 shape: 2 "
               "         num_values_each: [3, 4] }"));
  const ActionSpace& action = spaces.action;
  EXPECT_THAT(action.num_values, ElementsAre(5, 2, 2, 2, 3, 4));
  EXPECT_EQ(action.choices(), 6);
  EXPECT_EQ(action.logits(), 18);
  EXPECT_EQ(action.continuous, 3);
  EXPECT_EQ(action.outputs(), 21);
  EXPECT_THAT(action.low, ElementsAre(-1, -1, -kInfinity));
  EXPECT_THAT(action.high, ElementsAre(1, 2, kInfinity));
  std::vector<std::vector<int64_t>> leaves;
  for (const ActionSpace::Leaf& leaf : action.leaf) {
    leaves.push_back({leaf.discrete, leaf.dtype, leaf.first, leaf.elements});
  }
  EXPECT_THAT(leaves, ElementsAre(ElementsAre(0, v1::FLOAT32, 0, 2),
                                  ElementsAre(1, v1::INT64, 0, 1),
                                  ElementsAre(0, v1::FLOAT32, 2, 1),
                                  ElementsAre(1, v1::UINT8, 1, 3),
                                  ElementsAre(1, v1::INT64, 4, 2)));
}

TEST(SpacesTest, MasksAreJoinedInTheOrderOfActionsAndSeenByNoEncoder) {
  ASSERT_OK_AND_ASSIGN(
      const Spaces spaces,
      Describe(Leaf("path: 'm1' dtype: UINT8 shape: 4") +
               Leaf("path: 'm2' dtype: UINT8 shape: [2, 3]") +
               Leaf("path: 'x' dtype: FLOAT32 shape: 2") +
               "action { path: 'a' dtype: INT64 shape: 2 "
               "         num_values_each: [2, 4] mask_path: 'm2' }"
               "action { path: 'b' dtype: INT64 num_values: 3 }"
               "action { path: 'c' dtype: FLOAT32 }"
               "action { path: 'd' dtype: INT64 num_values: 4 "
               "         mask_path: 'm1' }"));
  ASSERT_THAT(spaces.observation, SizeIs(2));
  EXPECT_EQ(spaces.mask, 1);
  EXPECT_THAT(spaces.encoded(), ElementsAre(0));
  const LeafSpec& mask = spaces.observation[1];
  EXPECT_EQ(mask.kind, LeafKind::kMask);
  EXPECT_EQ(mask.dtype, v1::UINT8);
  EXPECT_EQ(mask.stack, 1);
  EXPECT_THAT(mask.shape, ElementsAre(6 + 3 + 4));
  std::vector<std::vector<int64_t>> parts;
  for (const LeafSpec::Part& part : mask.parts) {
    parts.push_back({part.leaf, part.elements, part.column, part.columns});
  }
  EXPECT_THAT(parts,
              ElementsAre(ElementsAre(1, 6, 0, 6), ElementsAre(0, 4, 9, 4)));
}

TEST(SpacesTest, TheSpecificationsMaskIsThatOfTheOnlyAction) {
  const std::string leaves = Leaf("path: 'm' dtype: UINT8 shape: 4") +
                             Leaf("path: 'x' dtype: FLOAT32 shape: 2");
  for (const std::string action :
       {"action_mask_path: 'm' action { dtype: INT64 num_values: 4 }",
        "action { dtype: INT64 num_values: 4 mask_path: 'm' }"}) {
    ASSERT_OK_AND_ASSIGN(const Spaces spaces, Describe(leaves + action));
    EXPECT_EQ(spaces.mask, 1);
    EXPECT_THAT(spaces.observation[1].shape, ElementsAre(4));
    EXPECT_THAT(spaces.observation[0].shape, ElementsAre(2));
  }
  // Of several it would be nobody's, and is numbers like others.
  ASSERT_OK_AND_ASSIGN(
      const Spaces two,
      Describe(leaves + "action_mask_path: 'm' "
                        "action { path: 'a' dtype: INT64 num_values: 4 }"
                        "action { path: 'b' dtype: INT64 num_values: 4 }"));
  EXPECT_EQ(two.mask, -1);
  ASSERT_THAT(two.observation, SizeIs(1));
  EXPECT_EQ(two.observation[0].numbers, 6);
}

// The mask is no company: the only leaf that is seen goes by model.encoder.
TEST(SpacesTest, AMaskDoesNotChangeWhatTheOnlyLeafIs) {
  const std::string mask =
      Leaf("path: 'm' dtype: UINT8 shape: 4") + "action_mask_path: 'm' ";
  const Spaces image =
      See(mask + Leaf("path: 'x' dtype: UINT8 shape: [20, 24, 3]"),
          "encoder: RESNET");
  EXPECT_EQ(image.observation[0].kind, LeafKind::kImage);
  const Spaces vector = See(
      mask + Leaf("path: 'x' dtype: UINT8 shape: [84, 84]"), "encoder: MLP");
  EXPECT_EQ(vector.observation[0].kind, LeafKind::kVector);
}

TEST(SpacesTest, WhatDoesNotFitIsRefusedByName) {
  const std::string x = Leaf("path: 'goal/polar' dtype: FLOAT32 shape: 2");
  const std::string discrete = "action { dtype: INT64 num_values: 4 } ";
  const std::string mask = Leaf("path: 'mask' dtype: UINT8 shape: 5");
  struct Case {
    std::string spec, model;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {discrete, "", {"its specification has no observation"}},
      {x, "", {"its specification has no action"}},
      {x + "action { dtype: INT64 }",
       "",
       {"its action (INT64 []) is neither discrete values (num_values) nor a "
        "FLOAT32 array",
        "MultiDiscrete"}},
      {x + discrete + "action { path: 'b' dtype: UINT8 shape: [2, 3] }",
       "",
       {"its action \"b\" (UINT8 [2, 3]) is neither"}},
      {x + discrete,
       "leaf { path: 'goal/pola' }",
       {"model.leaf names \"goal/pola\", which is no leaf of its observation",
        "there is \"goal/polar\"", "did you mean \"goal/polar\"?"}},
      {x + discrete,
       "leaf { path: 'goal/polar' } leaf { path: 'goal/polar' }",
       {"model.leaf names \"goal/polar\" twice; want it once"}},
      {x + mask + "action_mask_path: 'mask' " + discrete,
       "leaf { path: 'mask' }",
       {"model.leaf names \"mask\", which is no leaf", "\"goal/polar\""}},
      {x + mask + "action_mask_path: 'mask' " + discrete,
       "",
       {"its action (INT64 []) names \"mask\" as its mask",
        "a UINT8 leaf of the observation with 4 elements"}},
      {x + "action { path: 'a' dtype: INT64 num_values: 4 mask_path: 'm' }",
       "",
       {"its action \"a\" (INT64 []) names \"m\" as its mask"}},
      {x + Leaf("path: 'm' dtype: INT64 shape: 4") +
           "action { path: 'a' dtype: INT64 num_values: 4 mask_path: 'm' }",
       "",
       {"its action \"a\" (INT64 []) names \"m\" as its mask", "a UINT8 leaf"}},
      {x + mask +
           "action { path: 'a' dtype: FLOAT32 shape: 5 mask_path: 'mask' }",
       "",
       {"its action \"a\" (FLOAT32 [5]) has a mask (mask_path \"mask\"), and "
        "only discrete values can be forbidden"}},
      {Leaf("path: 'mask' dtype: UINT8 shape: 4") +
           "action_mask_path: 'mask' " + discrete,
       "",
       {"nothing but action masks", "want a leaf to see"}},
      {x + discrete,
       "leaf { path: 'goal/polar' encoder: EMBEDDING }",
       {"its observation \"goal/polar\" (FLOAT32 [2]) has no discrete values "
        "to "
        "embed"}},
      {x + discrete,
       "leaf { path: 'goal/polar' encoder: NATURE_CNN }",
       {"its observation \"goal/polar\" (FLOAT32 [2]) is no image, and "
        "model.leaf asks for NATURE_CNN",
        "or MLP"}},
      {x + discrete + Leaf("path: 'n' dtype: INT64 num_values: 4097"),
       "",
       {"its observation \"n\" (INT64 []) has 4097 values, too many for a "
        "one-hot vector (4096)",
        "--set 'model.leaf={path: \"n\" encoder: EMBEDDING hidden: [64]}'"}},
      {x + discrete + Leaf("path: 'n' dtype: UINT8 shape: 42 num_values: 100"),
       "leaf { path: 'n' hidden: 3 }",
       {"its observation \"n\" (UINT8 [42]) has 4200 values, too many"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.spec + c.model);
    const absl::StatusOr<Spaces> spaces = Describe(c.spec, c.model);
    for (const std::string& word : c.words) {
      EXPECT_THAT(spaces, StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr(word)));
    }
  }
}

TEST(SpacesTest, TheWidestOneHotVectorIsTaken) {
  const Spaces spaces = See(Leaf("path: 'a' dtype: INT64 num_values: 4096") +
                            Leaf("path: 'b' dtype: INT64 num_values: 4096"));
  EXPECT_THAT(spaces.observation[0].shape, ElementsAre(2 * 4096));
}

// An age is a byte (ObservationStore).
TEST(SpacesTest, AStackIsWhatAgesCanCount) {
  const std::string frames = "path: 'x' dtype: FLOAT32 shape: 2 frame_stack: ";
  EXPECT_EQ(See(Leaf(frames + "256")).max_stack(), 256);
  EXPECT_THAT(Describe(kFour + Leaf(frames + "257")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("\"x\""), HasSubstr("257"))));
}

}  // namespace
}  // namespace flotilla
