#include "envserver/envs/point_nav_space.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

#include "envserver/envs/point_nav_plan.h"
#include "services/base/random.h"

namespace flotilla {
namespace {

constexpr double kCell = FloorPlan::kCell;
constexpr int kSide = FloorPlan::kSide;

Point Center(int x, int y) { return {(x + 0.5) * kCell, (y + 0.5) * kCell}; }

Point FreePoint(const FreeSpace& space, Random* random) {
  while (true) {
    const double x = random->Uniform(0, kSide * kCell);
    const double y = random->Uniform(0, kSide * kCell);
    if (space.IsFree({x, y})) return {x, y};
  }
}

TEST(FloorPlanTest, EveryRoomIsReached) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const FloorPlan plan = FloorPlan::Make(seed);
    EXPECT_GE(plan.num_rooms(), 6);
    std::vector<bool> seen(kSide * kSide);
    int free = 0, reached = 0;
    std::queue<std::pair<int, int>> queue;
    for (int y = 0; y < kSide; ++y) {
      for (int x = 0; x < kSide; ++x) {
        free += plan.IsSolid(x, y) ? 0 : 1;
        if (queue.empty() && reached == 0 && !plan.IsSolid(x, y)) {
          queue.emplace(x, y);
          seen[y * kSide + x] = true;
          reached = 1;
        }
      }
    }
    for (; !queue.empty(); queue.pop()) {
      const auto [x, y] = queue.front();
      for (const auto& [dx, dy] : {std::pair(1, 0), {-1, 0}, {0, 1}, {0, -1}}) {
        if (plan.IsSolid(x + dx, y + dy)) continue;
        if (seen[(y + dy) * kSide + x + dx]) continue;
        seen[(y + dy) * kSide + x + dx] = true;
        queue.emplace(x + dx, y + dy);
        ++reached;
      }
    }
    EXPECT_EQ(reached, free) << "plan " << seed;
  }
}

TEST(FloorPlanTest, ABodyFitsThroughEveryDoor) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const FloorPlan plan = FloorPlan::Make(seed);
    const FreeSpace space(plan);
    int doors = 0;
    for (int y = 1; y < kSide - 1; ++y) {
      for (int x = 1; x < kSide - 1; ++x) {
        if (plan.at(x, y) != PlanCell::kDoor) continue;
        ++doors;
        const bool along_x = plan.at(x - 1, y) == PlanCell::kDoor ||
                             plan.at(x + 1, y) == PlanCell::kDoor;
        const Point from = along_x ? Center(x, y - 1) : Center(x - 1, y);
        const Point to = along_x ? Center(x, y + 1) : Center(x + 1, y);
        EXPECT_TRUE(space.IsFree(from) && space.IsFree(to));
        EXPECT_TRUE(space.Sees(from, to)) << "door at " << x << ", " << y;
      }
    }
    EXPECT_GE(doors, FloorPlan::kDoorWidth * (plan.num_rooms() - 1));
  }
}

TEST(FreeSpaceTest, AWayBendsAtTheCornersOfWhatIsSolid) {
  FloorPlan plan;
  for (int y = 20; y < 30; ++y) plan.set(20, y, PlanCell::kFurniture);
  const FreeSpace space(plan);
  // Solid from (5, 5) to (5.25, 7.5): around its upper end, grown by 0.1.
  const auto goal = space.MakeGoal({6, 5.5});
  Point next;
  EXPECT_NEAR(space.DistanceTo(goal, {4, 5.5}, &next),
              std::hypot(0.9, 0.6) + 0.45 + std::hypot(0.65, 0.6), 1e-9);
  EXPECT_NEAR(next.x, 4.9, 1e-9);
  EXPECT_NEAR(next.y, 4.9, 1e-9);
  EXPECT_NEAR(space.DistanceTo(goal, {4, 3}, &next), std::hypot(2, 2.5), 1e-9);
  EXPECT_EQ(next.x, goal.point.x);
}

TEST(FreeSpaceTest, WithoutAWayTheDistanceIsInfinite) {
  FloorPlan plan;
  for (int y = 0; y < kSide; ++y) plan.set(20, y, PlanCell::kWall);
  const FreeSpace space(plan);
  EXPECT_TRUE(std::isinf(space.DistanceTo(space.MakeGoal({1, 1}), {9, 1})));
}

// Ways along a lattice of 5 cm, on which all that is solid begins and ends:
// moves of up to 3 columns and rows, each sampled every 5 mm at most. Never
// shorter than the shortest way, and at most 1.4 % longer where it is straight.
std::vector<double> LatticeDistances(const FreeSpace& space, int from_x,
                                     int from_y, int size, double step) {
  const auto at = [&](int x, int y) { return Point{x * step, y * step}; };
  std::vector<char> free(size * size);
  for (int y = 0; y < size; ++y) {
    for (int x = 0; x < size; ++x) free[y * size + x] = space.IsFree(at(x, y));
  }
  std::vector<double> distance(size * size,
                               std::numeric_limits<double>::infinity());
  using Entry = std::pair<double, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  distance[from_y * size + from_x] = 0;
  queue.emplace(0, from_y * size + from_x);
  while (!queue.empty()) {
    const auto [here, index] = queue.top();
    queue.pop();
    if (here > distance[index]) continue;
    const int x = index % size, y = index / size;
    for (int dy = -3; dy <= 3; ++dy) {
      for (int dx = -3; dx <= 3; ++dx) {
        if (std::gcd(dx, dy) != 1) continue;
        const int to_x = x + dx, to_y = y + dy;
        if (to_x < 0 || to_y < 0 || to_x >= size || to_y >= size) continue;
        const int to = to_y * size + to_x;
        const double there = here + step * std::hypot(dx, dy);
        if (!free[to] || there >= distance[to]) continue;
        bool open = true;
        for (int i = 1; open && i < 40; ++i) {
          open = space.IsFree(
              {(x + dx * i / 40.0) * step, (y + dy * i / 40.0) * step});
        }
        if (!open) continue;
        distance[to] = there;
        queue.emplace(there, to);
      }
    }
  }
  return distance;
}

TEST(FreeSpaceTest, DistancesAreThoseOfASlowLattice) {
  constexpr double kStep = 0.05;
  constexpr int kSize = 281;
  const FreeSpace space(FloorPlan::Make(3));
  Random random(1);
  const auto lattice_point = [&] {
    while (true) {
      const auto x = static_cast<int>(random.Below(kSize));
      const auto y = static_cast<int>(random.Below(kSize));
      if (space.IsFree({x * kStep, y * kStep})) return std::pair(x, y);
    }
  };
  const auto [goal_x, goal_y] = lattice_point();
  const auto goal = space.MakeGoal({goal_x * kStep, goal_y * kStep});
  const auto slow = LatticeDistances(space, goal_x, goal_y, kSize, kStep);
  double longest = 0;
  for (int i = 0; i < 500; ++i) {
    const auto [x, y] = lattice_point();
    const double exact = space.DistanceTo(goal, {x * kStep, y * kStep});
    EXPECT_LE(exact, slow[y * kSize + x] + 1e-6);
    EXPECT_GE(exact * 1.015 + 1e-6, slow[y * kSize + x]) << x << ", " << y;
    longest = std::max(longest, exact);
  }
  EXPECT_GT(longest, 10);
}

TEST(FreeSpaceTest, AStepStopsAtAWallAndSlidesAlongIt) {
  FloorPlan plan;
  const FreeSpace space(plan);
  auto move = space.Slide({1, 5}, -0.25, 0);
  EXPECT_FALSE(move.collided);
  EXPECT_DOUBLE_EQ(move.end.x, 0.75);
  move =
      space.Slide({0.45, 5}, -0.25, 0);  // the wall ends at 0.25, a body is 0.1
  EXPECT_TRUE(move.collided);
  EXPECT_DOUBLE_EQ(move.end.x, 0.35);
  EXPECT_DOUBLE_EQ(move.end.y, 5);
  move = space.Slide({0.45, 5}, -0.2, 0.15);
  EXPECT_TRUE(move.collided);
  EXPECT_DOUBLE_EQ(move.end.x, 0.35);
  EXPECT_DOUBLE_EQ(move.end.y, 5.15);
  move = space.Slide({0.4, 0.45}, -0.2, -0.15);  // into the corner
  EXPECT_TRUE(move.collided);
  EXPECT_DOUBLE_EQ(move.end.x, 0.35);
  EXPECT_DOUBLE_EQ(move.end.y, 0.35);
  // Along a wall that it touches nothing is hit.
  move = space.Slide({0.35, 5}, 0, 0.25);
  EXPECT_FALSE(move.collided);
  EXPECT_DOUBLE_EQ(move.end.y, 5.25);
}

TEST(FreeSpaceTest, NoStepLeavesTheFreeSpaceOrIsLongerThanItself) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const FreeSpace space(FloorPlan::Make(seed));
    Random random(seed);
    Point at = FreePoint(space, &random);
    double angle = 0;
    for (int i = 0; i < 5000; ++i) {
      // Straight on for long, so that walls are met.
      if (random.Below(20) == 0) angle = random.Uniform(0, 6.2831853);
      const auto move =
          space.Slide(at, 0.25 * std::cos(angle), 0.25 * std::sin(angle));
      ASSERT_TRUE(space.IsFree(move.end)) << move.end.x << ", " << move.end.y;
      ASSERT_LE(Distance(at, move.end), 0.25 + 1e-9);
      if (!move.collided) {
        ASSERT_TRUE(space.Sees(at, move.end));
        ASSERT_NEAR(Distance(at, move.end), 0.25, 1e-9);
      }
      at = move.end;
    }
  }
}

}  // namespace
}  // namespace flotilla
