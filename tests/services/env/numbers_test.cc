#include "services/env/numbers.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// As they may lie in a message: at any address.
std::span<const std::byte> Unaligned(const std::vector<float>& values,
                                     std::string* memory) {
  memory->assign(1, 'x');
  memory->append(reinterpret_cast<const char*>(values.data()),
                 values.size() * sizeof(float));
  return std::as_bytes(std::span(*memory)).subspan(1);
}

TEST(NumbersTest, OneBadNumberIsFoundWhereverItIs) {
  const float good[] = {0.0f,   -0.0f,
                        1.0f,   1e18f,
                        -1e18f, std::numeric_limits<float>::denorm_min()};
  const float bad[] = {
      kNan,  -kNan, kInfinity, -kInfinity, std::nextafter(1e18f, kInfinity),
      -3e38f};
  std::string memory;
  for (size_t size = 0; size < 70; ++size) {
    std::vector<float> values(size);
    for (size_t i = 0; i < size; ++i) values[i] = good[i % std::size(good)];
    ASSERT_TRUE(AllUsable(Unaligned(values, &memory))) << size;
    ASSERT_TRUE(CheckNumbers("x", Unaligned(values, &memory)).ok());
    for (size_t at = 0; at < size; ++at) {
      const float before = values[at];
      values[at] = bad[(size + at) % std::size(bad)];
      ASSERT_FALSE(AllUsable(Unaligned(values, &memory))) << size << " " << at;
      const std::string message(
          CheckNumbers("x", Unaligned(values, &memory)).message());
      const std::string want =
          size == 1 ? absl::StrCat("x is ", values[at])
                    : absl::StrCat("x, element ", at, ", is ", values[at]);
      ASSERT_EQ(message.substr(0, want.size()), want);
      values[at] = before;
    }
  }
}

TEST(NumbersTest, DoublesHaveTheSameBound) {
  for (double good : {0.0, 1e18, -1e17}) EXPECT_TRUE(IsUsable(good));
  for (double bad : {1.1e18, -1e300, double{kNan}, double{kInfinity}}) {
    EXPECT_FALSE(IsUsable(bad)) << bad;
  }
}

// Steps of a group of rows, and what is refused of them.
class RefuseRowsTest : public testing::Test {
 protected:
  static constexpr int kRows = 3;

  // `spec` in text form; every observation is 0, but masks, which allow all.
  void Play(const std::string& spec) {
    spec_.Clear();
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(spec, &spec_));
    spec_.set_env_id("Test");
    ASSERT_OK_AND_ASSIGN(layout_, MakeGroupLayout(spec_, kRows, 1));
    memory_.clear();
    for (const size_t bytes : layout_.observation_bytes) {
      memory_.push_back(std::string(kRows * bytes, '\0'));
    }
    step_.Clear();
    step_.set_seq(7);
    step_.set_reward(std::string(kRows * sizeof(float), '\0'));
    step_.set_terminated(std::string(kRows, '\0'));
    step_.set_truncated(std::string(kRows, '\0'));
  }

  template <typename T>
  void Put(std::string* memory, size_t i, T value) {
    std::memcpy(memory->data() + i * sizeof(T), &value, sizeof(T));
  }
  template <typename T>
  void Put(int leaf, size_t i, T value) {
    Put(&memory_[leaf], i, value);
  }

  // Row `row` ended at observations that are all `byte`.
  void End(int row, char byte) {
    step_.mutable_terminated()->at(row) = 1;
    step_.add_final_row(row);
    auto* finals = step_.mutable_final_observation();
    for (int i = 0; i < spec_.observation_size(); ++i) {
      if (finals->leaf_size() == i) finals->add_leaf();
      finals->mutable_leaf(i)->append(layout_.observation_bytes[i], byte);
    }
  }

  // The messages, "ROW: ..." without what all begin with.
  std::vector<std::string> Refuse() {
    std::vector<std::span<std::byte>> arrays;
    for (std::string& m : memory_) {
      arrays.push_back(std::as_writable_bytes(std::span(m)));
    }
    count_ = RefuseRows(spec_, layout_, arrays, &step_, &blind_);
    std::vector<std::string> messages;
    for (const v1::RowError& error : step_.error()) {
      const std::string begin =
          absl::StrCat("env \"Test\", row ", error.row(), ", step 7: ");
      EXPECT_EQ(error.message().substr(0, begin.size()), begin);
      messages.push_back(
          absl::StrCat(error.row(), ": ",
                       error.message().size() < begin.size()
                           ? error.message()
                           : error.message().substr(begin.size())));
    }
    return messages;
  }

  v1::EnvSpec spec_;
  GroupLayout layout_;
  std::vector<std::string> memory_;
  v1::StepBatch step_;
  int count_ = 0;
  std::vector<uint8_t> blind_;
};

constexpr char kChoice[] = "action { dtype: INT64 num_values: 3 } ";

TEST_F(RefuseRowsTest, ValuesThatAreNoneOfALeafs) {
  Play(absl::StrCat(kChoice,
                    "observation { path: 'a' dtype: INT64 num_values: 5 }"
                    "observation { path: 'b' dtype: UINT8 shape: 2 "
                    "              num_values_each: [2, 4] }"
                    "observation { path: 'c' dtype: UINT8 shape: 2 }"));
  Put<int64_t>(0, 0, 4);
  Put<uint8_t>(1, 0, 1);
  Put<uint8_t>(1, 1, 3);
  Put<uint8_t>(2, 0, 255);
  EXPECT_THAT(Refuse(), IsEmpty());
  EXPECT_EQ(count_, 0);

  for (const int64_t bad : {int64_t{5}, int64_t{-1}, int64_t{1} << 40}) {
    step_.clear_error();
    Put<int64_t>(0, 2, bad);
    EXPECT_THAT(Refuse(),
                ElementsAre(absl::StrCat("2: the observation \"a\" is ", bad,
                                         ", want 0 to 4")));
    EXPECT_EQ(count_, 1);
    EXPECT_THAT(blind_, ElementsAre(0, 0, 1));
    EXPECT_EQ(memory_[0].substr(16), std::string(8, '\0'));
  }

  step_.clear_error();
  Put<uint8_t>(1, 2, 2);
  Put<uint8_t>(1, 3, 9);
  Put<uint8_t>(1, 5, 4);
  EXPECT_THAT(
      Refuse(),
      ElementsAre("1: the observation \"b\", element 0, is 2, want 0 to 1",
                  "2: the observation \"b\", element 1, is 4, want 0 to 3"));
  EXPECT_EQ(memory_[1], std::string("\1\3\0\0\0\0", 6));
}

TEST_F(RefuseRowsTest, TheOnlyLeafHasNoName) {
  Play(absl::StrCat(kChoice, "observation { dtype: INT64 num_values: 5 }"));
  Put<int64_t>(0, 1, 7);
  EXPECT_THAT(Refuse(), ElementsAre("1: the observation is 7, want 0 to 4"));
}

TEST_F(RefuseRowsTest, MasksThatAreNoMasks) {
  for (const std::string spec :
       {"action_mask_path: 'm' action { dtype: INT64 num_values: 3 }",
        "action { dtype: INT64 num_values: 3 mask_path: 'm' }"}) {
    Play(spec + "observation { path: 'm' dtype: UINT8 shape: 3 }");
    memory_[0] = std::string("\1\0\0\1\2\0\0\0\0", 9);
    EXPECT_THAT(
        Refuse(),
        ElementsAre("1: the observation \"m\", element 1, is 2, want 0 to 1",
                    "2: the observation \"m\" allows no value of the action's "
                    "element 0, want at least one of 3"));
    EXPECT_THAT(blind_, ElementsAre(0, 1, 1));
    EXPECT_EQ(memory_[0], std::string("\1\0\0\0\0\0\0\0\0", 9));
  }
}

TEST_F(RefuseRowsTest, EveryElementOfAnActionIsAllowedSomething) {
  Play(
      "action { path: 'a' dtype: INT64 shape: 2 num_values_each: [2, 3] "
      "         mask_path: 'm' }"
      "action { path: 'b' dtype: UINT8 shape: 2 num_values: 2 "
      "         mask_path: 'n' }"
      "observation { path: 'm' dtype: UINT8 shape: 5 }"
      "observation { path: 'n' dtype: UINT8 shape: [2, 2] }");
  memory_[0] = std::string(
      "\1\0\0\0\1"
      "\1\1\0\0\0"
      "\0\0\1\1\1",
      15);
  memory_[1] = std::string(
      "\1\0\0\1"
      "\1\1\1\1"
      "\1\1\1\1",
      12);
  EXPECT_THAT(
      Refuse(),
      ElementsAre("1: the observation \"m\" allows no value of the action's "
                  "element 1, want at least one of 3",
                  "2: the observation \"m\" allows no value of the action's "
                  "element 0, want at least one of 2"));
  step_.clear_error();
  memory_[0].assign(15, '\1');
  memory_[1].assign(12, '\1');
  memory_[1][2] = memory_[1][3] = 0;
  EXPECT_THAT(Refuse(),
              ElementsAre("0: the observation \"n\" allows no value of the "
                          "action's element 1, want at least one of 2"));
}

TEST_F(RefuseRowsTest, AMaskOfTwoActionsAllowsSomethingOfBoth) {
  Play(
      "action { path: 'a' dtype: INT64 shape: 2 num_values_each: [2, 3] "
      "         mask_path: 'm' }"
      "action { path: 'b' dtype: INT64 num_values: 5 mask_path: 'm' }"
      "observation { path: 'm' dtype: UINT8 shape: 5 }");
  memory_[0] = std::string(
      "\1\0\0\0\1"
      "\1\0\0\0\0"
      "\0\0\0\0\0",
      15);
  EXPECT_THAT(
      Refuse(),
      ElementsAre("1: the observation \"m\" allows no value of the action's "
                  "element 1, want at least one of 3",
                  "2: the observation \"m\" allows no value of the action's "
                  "element 0, want at least one of 2"));
}

// Nobody acts on what ended, nor on what has failed.
TEST_F(RefuseRowsTest, EndsAndFailedRowsNeedNotAllowAnything) {
  Play(
      "action { dtype: INT64 num_values: 3 mask_path: 'm' }"
      "observation { path: 'm' dtype: UINT8 shape: 3 }");
  memory_[0] = std::string("\1\1\1\0\0\0\1\1\1", 9);
  v1::RowError* failed = step_.add_error();
  failed->set_row(1);
  failed->set_message("env \"Test\", row 1, step 7: it broke");
  End(0, '\0');
  EXPECT_THAT(Refuse(), ElementsAre("1: it broke"));
  EXPECT_EQ(count_, 0);
  EXPECT_THAT(blind_, ElementsAre(0, 0, 0));
}

// It observes whatever its server likes; nobody may stumble over it.
TEST_F(RefuseRowsTest, WhatRowsThatAreNotActiveObserveBecomesHarmless) {
  Play(
      "action { dtype: INT64 num_values: 3 mask_path: 'm' }"
      "observation { path: 'a' dtype: FLOAT32 }"
      "observation { path: 'b' dtype: INT64 num_values: 2 }"
      "observation { path: 'm' dtype: UINT8 shape: 3 }");
  const auto spoil = [&] {
    Put<float>(0, 0, kNan);
    Put<float>(0, 1, 5);
    Put<int64_t>(1, 0, 9);
    memory_[2] = std::string("\0\0\0\0\0\0\1\1\1", 9);
  };
  spoil();
  step_.set_active(std::string("\0\0\1", 3));
  EXPECT_THAT(Refuse(), IsEmpty());
  EXPECT_THAT(blind_, ElementsAre(0, 0, 0));
  EXPECT_EQ(memory_[0].substr(0, 4), std::string(4, '\0'));
  EXPECT_NE(memory_[0].substr(4, 4), std::string(4, '\0'));  // fine as it is
  EXPECT_EQ(memory_[1], std::string(24, '\0'));

  spoil();
  step_.set_active(std::string("\1\1\1", 3));
  EXPECT_EQ(Refuse().size(), 2u);

  // What they get belongs to what they did before.
  Play(absl::StrCat(kChoice, "observation { dtype: FLOAT32 }"));
  step_.set_active(std::string(3, '\0'));
  Put<float>(step_.mutable_reward(), 1, kNan);
  EXPECT_THAT(Refuse(), ElementsAre("1: the reward is nan, want a finite "
                                    "number up to 1e+18"));
}

TEST(FailOtherSlotsTest, EnvironmentsFailAsAWhole) {
  v1::StepBatch step;
  step.add_error()->set_row(3);
  step.mutable_error(0)->set_message("it broke");
  step.add_error()->set_row(8);
  v1::StepBatch alone = step;
  GroupLayout layout;
  layout.rows = 9;
  FailOtherSlots(layout, &alone);
  EXPECT_EQ(alone.error_size(), 2);
  layout.agents = 3;
  FailOtherSlots(layout, &step);
  std::vector<std::string> errors;
  for (const v1::RowError& error : step.error()) {
    errors.push_back(absl::StrCat(error.row(), error.message()));
  }
  EXPECT_THAT(errors, ElementsAre("3it broke", "8", "4", "5", "6", "7"));
}

TEST_F(RefuseRowsTest, FinalObservationsAreValuesToo) {
  Play(
      "action { dtype: INT64 num_values: 3 mask_path: 'm' }"
      "observation { path: 'a' dtype: UINT8 num_values: 5 }"
      "observation { path: 'm' dtype: UINT8 shape: 3 }");
  memory_[1].assign(9, '\1');
  End(0, '\1');
  End(2, '\6');
  EXPECT_THAT(Refuse(),
              ElementsAre("2: the final observation \"a\" is 6, want 0 to 4"));
  EXPECT_EQ(count_, 1);
  EXPECT_THAT(blind_, ElementsAre(0, 0, 0));  // it sees its next episode
  EXPECT_EQ(step_.final_observation().leaf(0), std::string("\1\0", 2));
  EXPECT_EQ(step_.final_observation().leaf(1), std::string("\1\1\1\0\0\0", 6));
}

TEST_F(RefuseRowsTest, TheFirstThatIsWrongIsSaidAndEverythingBecomesZero) {
  Play(absl::StrCat(kChoice,
                    "observation { path: 'a' dtype: FLOAT32 shape: 2 }"
                    "observation { path: 'b' dtype: INT64 num_values: 2 }"));
  Put<float>(0, 3, kNan);
  Put<int64_t>(1, 1, 2);
  Put<int64_t>(1, 2, -3);
  Put<float>(step_.mutable_reward(), 2, kInfinity);
  EXPECT_THAT(
      Refuse(),
      ElementsAre("2: the reward is inf, want a finite number up to 1e+18",
                  "1: the observation \"a\", element 1, is nan, want a finite "
                  "number up to 1e+18"));
  EXPECT_EQ(count_, 2);
  EXPECT_THAT(blind_, ElementsAre(0, 1, 1));
  EXPECT_EQ(memory_[0], std::string(24, '\0'));
  EXPECT_EQ(memory_[1], std::string(24, '\0'));
  EXPECT_EQ(step_.reward(), std::string(12, '\0'));
}

}  // namespace
}  // namespace flotilla
