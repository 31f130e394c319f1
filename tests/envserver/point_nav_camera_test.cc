#include "envserver/envs/point_nav_camera.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "envserver/envs/point_nav_scene.h"

namespace flotilla {
namespace {

constexpr int kPixels = DepthCamera::kPixels;

std::vector<std::byte> See(const FloorPlan& plan, const Point& eye,
                           int heading) {
  static const DepthCamera camera;
  std::vector<std::byte> image(kPixels * kPixels);
  camera.Render(plan, eye, heading, image);
  return image;
}

struct Box {
  double low[3], high[3];
};

// All that can be seen, as boxes: cells of wall and furniture, lintels, floor
// and ceiling.
std::vector<Box> BoxesOf(const FloorPlan& plan) {
  std::vector<Box> boxes = {{{-99, -99, -1}, {99, 99, 0}},
                            {{-99, -99, kCeiling}, {99, 99, kCeiling + 1}}};
  for (int y = 0; y < FloorPlan::kSide; ++y) {
    for (int x = 0; x < FloorPlan::kSide; ++x) {
      const double x0 = x * FloorPlan::kCell, x1 = x0 + FloorPlan::kCell;
      const double y0 = y * FloorPlan::kCell, y1 = y0 + FloorPlan::kCell;
      switch (plan.at(x, y)) {
        case PlanCell::kFree:
          break;
        case PlanCell::kDoor:
          boxes.push_back({{x0, y0, 2.0}, {x1, y1, kCeiling}});
          break;
        case PlanCell::kFurniture:
          boxes.push_back({{x0, y0, 0}, {x1, y1, 0.7}});
          break;
        case PlanCell::kWall:
          boxes.push_back({{x0, y0, 0}, {x1, y1, kCeiling}});
          break;
      }
    }
  }
  return boxes;
}

// The first box that a ray from `eye` meets, in multiples of `direction`.
double FirstMet(const std::vector<Box>& boxes, const double* eye,
                const double* direction) {
  double first = 1e9;
  for (const Box& box : boxes) {
    double begin = 0, end = first;
    for (int i = 0; i < 3; ++i) {
      const double d = direction[i] == 0 ? 1e-15 : direction[i];
      const double a = (box.low[i] - eye[i]) / d;
      const double b = (box.high[i] - eye[i]) / d;
      begin = std::max(begin, std::min(a, b));
      end = std::min(end, std::max(a, b));
    }
    if (begin < end) first = begin;
  }
  return first;
}

TEST(DepthCameraTest, EveryPixelIsTheFirstThingThatItsRayMeets) {
  constexpr double kPi = 3.141592653589793;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Scene scene = Scene::Make(seed, SceneSplit::kEval);
    const std::vector<Box> boxes = BoxesOf(scene.plan);
    for (size_t i = 0; i < 12; i += 4) {
      const auto& [start, heading, goal, distance] = scene.episodes[i];
      const auto image = See(scene.plan, start, heading);
      const double angle = heading * kPi / 18;
      const double eye[] = {start.x, start.y, 1.25};
      int edges = 0;
      for (int row = 0; row < kPixels; ++row) {
        for (int column = 0; column < kPixels; ++column) {
          const double right = (column - 31.5) / 32, down = (row - 31.5) / 32;
          // y points down in a plan: left of ahead is towards smaller y.
          const double ray[] = {std::cos(angle) + right * std::sin(angle),
                                -std::sin(angle) + right * std::cos(angle),
                                -down};
          const double met = std::min(FirstMet(boxes, eye, ray), 10.0);
          const int pixel = static_cast<int>(image[row * kPixels + column]);
          if (std::abs(pixel - met * 25.5) > 1) ++edges;
        }
      }
      // Rounding decides on which side of an edge a ray passes.
      EXPECT_LE(edges, 4) << "scene " << seed << ", episode " << i;
    }
  }
}

TEST(DepthCameraTest, RowsTellHeights) {
  FloorPlan plan;
  // 2 m ahead of (1, 7) a table, and a wall behind it, 4 m away.
  for (int y = 0; y < FloorPlan::kSide; ++y) {
    plan.set(12, y, PlanCell::kFurniture);
    plan.set(20, y, PlanCell::kWall);
  }
  const auto image = See(plan, {1, 7}, 0);
  const auto at = [&](int row) {
    return static_cast<int>(image[row * kPixels + 32]);
  };
  EXPECT_EQ(at(31), DepthCamera::PixelOf(4));  // level
  EXPECT_EQ(at(32), DepthCamera::PixelOf(4));
  EXPECT_EQ(at(32 + 12),
            DepthCamera::PixelOf(2));  // 1.25 - 2 * 12.5 / 32 < 0.7
  EXPECT_EQ(at(63), DepthCamera::PixelOf(1.25 / (31.5 / 32)));  // floor
  EXPECT_EQ(at(0), DepthCamera::PixelOf(1.35 / (31.5 / 32)));   // ceiling
}

TEST(DepthCameraTest, ATurnToTheLeftMovesThingsToTheRight) {
  FloorPlan plan;
  plan.set(40, 28, PlanCell::kWall);  // a pillar straight ahead
  const auto nearest = [&](int heading) {
    const auto image = See(plan, {5, 7.125}, heading);
    const auto row = image.begin() + 31 * kPixels;
    return std::min_element(row, row + kPixels) - row;
  };
  EXPECT_GE(nearest(0), 30);
  EXPECT_LE(nearest(0), 33);
  EXPECT_GT(nearest(1), nearest(0));
  EXPECT_LT(nearest(35), nearest(0));
}

}  // namespace
}  // namespace flotilla
