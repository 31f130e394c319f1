#include "envserver/envs/snake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "envserver/registry.h"
#include "tests/envserver/vector_env_rig.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Move = SnakeField::Move;
using View = std::array<float, SnakeField::kObserved>;

constexpr int kHead = SnakeField::kObserved / 2;
// Beside the head, in a view, by action.
constexpr int kBeside[] = {kHead - SnakeField::kView, kHead + 1,
                           kHead + SnakeField::kView, kHead - 1};

View Look(const SnakeField& field, int snake) {
  View view;
  field.Observe(snake, view.data());
  return view;
}

struct Count {
  int food = 0, deadly = 0;
};

Count Cells(const SnakeField& field, const SnakeField::Size& size) {
  Count count;
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x) {
      count.food += field.at(x, y) == SnakeField::kFood;
      count.deadly += field.at(x, y) == SnakeField::kDeadly;
    }
  }
  return count;
}

// Food if it is beside, else what does not kill.
int64_t Choose(const View& view, int64_t wish) {
  for (int a = 0; a < 4; ++a) {
    if (view[kBeside[a]] == 1) return a;
  }
  for (int i = 0; i < 4; ++i) {
    const int64_t a = (wish + i) % 4;
    if (view[kBeside[a]] == 0) return a;
  }
  return wish;
}

TEST(SnakeTest, CellsAreWhatSnakesAndFoodAre) {
  const SnakeField::Size size{
      .width = 30, .height = 14, .snakes = 12, .food = 25, .longest = 10};
  SnakeField field(size);
  field.Reset(3);
  std::minstd_rand random(3);
  int ate = 0, died = 0, longest = 0;
  for (int step = 0; step < 3000; ++step) {
    for (int i = 0; i < size.snakes; ++i) {
      const View view = Look(field, i);
      EXPECT_EQ(view[kHead], SnakeField::kDeadly);
      const int before = field.length(i);
      const auto wish = static_cast<int64_t>(random() >> 8) % 4;
      // Now and then without a look.
      const int64_t action = random() % 16 == 0 ? wish : Choose(view, wish);
      const float found = view[kBeside[action]];
      const Move move = field.Go(i, action);
      if (move == Move::kAte) {
        ++ate;
        ASSERT_EQ(field.length(i), std::min(before + 1, size.longest));
      } else if (move == Move::kDied) {
        ++died;
        ASSERT_EQ(field.length(i), 1);
      } else {
        ASSERT_EQ(field.length(i), before);
      }
      // One that cannot turn back goes on; all others meet what they saw there.
      if (found == 1) {
        ASSERT_EQ(move, Move::kAte);
      }
      if (found == 0) {
        ASSERT_EQ(move, Move::kWent);
      }
      if (before == 1 && found == -1) {
        ASSERT_EQ(move, Move::kDied);
      }
    }
    field.Replenish();
    int body = 0;
    for (int i = 0; i < size.snakes; ++i) {
      body += field.length(i);
      longest = std::max(longest, field.length(i));
    }
    const Count count = Cells(field, size);
    ASSERT_EQ(count.deadly, body) << step;
    ASSERT_EQ(count.food, field.food()) << step;
    ASSERT_GE(count.food, size.food);
  }
  EXPECT_GT(ate, 1000);
  EXPECT_GT(died, 100);
  EXPECT_EQ(longest, size.longest);
}

TEST(SnakeTest, WhoDiesLeavesFood) {
  const SnakeField::Size size{
      .width = 40, .height = 40, .snakes = 1, .food = 200, .longest = 9};
  SnakeField field(size);
  field.Reset(5);
  std::minstd_rand random(5);
  for (int step = 0; step < 20000 && field.length(0) < 9; ++step) {
    field.Go(0,
             Choose(Look(field, 0), static_cast<int64_t>(random() >> 8) % 4));
    field.Replenish();
  }
  ASSERT_EQ(field.length(0), 9);
  // To a wall, and into it; what is on the way is eaten.
  const int before = field.food();
  int eaten = 0;
  Move move = Move::kWent;
  for (int64_t action : {0, 1, 0}) {
    for (int i = 0; i < 41 && move != Move::kDied; ++i) {
      move = field.Go(0, action);
      eaten += move == Move::kAte;
    }
  }
  ASSERT_EQ(move, Move::kDied);
  EXPECT_EQ(field.length(0), 1);
  EXPECT_EQ(field.food(), before - eaten + 4);
}

TEST(SnakeTest, SeesTheWallAsDeadly) {
  const SnakeField::Size size{
      .width = 2, .height = 2, .snakes = 1, .food = 0, .longest = 2};
  SnakeField field(size);
  field.Reset(1);
  const View view = Look(field, 0);
  int free = 0;
  for (const float cell : view) free += cell != -1;
  EXPECT_EQ(free, 3);
}

TEST(SnakeTest, AFieldThatIsTooSmallIsRefused) {
  const EnvironmentRegistry registry;
  v1::EnvOptions options;
  (*options.mutable_kwargs())["width"] = "100";
  EXPECT_THAT(registry.Make("Snake", options, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("half of the field")));
  (*options.mutable_kwargs())["width"] = "0";
  EXPECT_THAT(registry.Make("Snake", options, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("kwargs.width is 0, want 2 to 2048")));
  options.clear_kwargs();
  (*options.mutable_kwargs())["agent"] = "4";
  EXPECT_THAT(
      registry.Make("Snake", options, 0),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("agents")));
}

TEST(SnakeTest, MoreFieldsThanFitIntoMemoryAreRefused) {
  const EnvironmentRegistry registry;
  const RegistryFactory factory(&registry, 1);
  v1::Hello hello;
  hello.set_env_id("Snake");
  hello.set_num_groups(2);
  auto& kwargs = *hello.mutable_options()->mutable_kwargs();
  kwargs["agents"] = "1";
  kwargs["width"] = "2048";
  kwargs["height"] = "2048";
  Completions done;
  hello.set_num_envs(2);
  EXPECT_OK(factory.Make(hello, &done));
  // No part has more fields than there may be, all of them together do.
  hello.set_num_envs(254);
  EXPECT_THAT(factory.Make(hello, &done).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("num_envs is 254"),
                             HasSubstr("width 2048, height 2048"),
                             HasSubstr("want at most 253 rows"))));
}

TEST(SnakeTest, APictureShowsEachCell) {
  const SnakeField::Size size{
      .width = 32, .height = 18, .snakes = 3, .food = 20, .longest = 8};
  SnakeField field(size);
  field.Reset(2);
  const v1::Frame frame = field.Render();
  ASSERT_EQ(frame.width(), 640);
  ASSERT_EQ(frame.height(), 360);
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x) {
      const auto at = static_cast<size_t>((20 * y + 10) * 640 + 20 * x + 10);
      const bool lit = static_cast<uint8_t>(frame.rgb()[3 * at]) > 50;
      ASSERT_EQ(lit, field.at(x, y) != SnakeField::kEmpty);
    }
  }
}

}  // namespace
}  // namespace flotilla
