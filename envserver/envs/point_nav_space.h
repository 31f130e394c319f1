#ifndef FLOTILLA_ENVSERVER_ENVS_POINT_NAV_SPACE_H_
#define FLOTILLA_ENVSERVER_ENVS_POINT_NAV_SPACE_H_

#include <vector>

#include "envserver/envs/point_nav_plan.h"

namespace flotilla {

struct Point {
  double x = 0;
  double y = 0;
};

double Distance(const Point& a, const Point& b);

// Where the middle of a body may be in a plan, and the shortest ways there. The
// body is a square of 2 * kBody along the axes, so that the free space has
// straight sides and a shortest way is exact: it bends only at corners of what
// is solid, and is found in the graph of the corners that see each other.
//
// Thread-safe once made.
class FreeSpace {
 public:
  static constexpr double kBody = 0.1;  // meters; Habitat's radius

  explicit FreeSpace(const FloorPlan& plan);

  bool IsFree(const Point& point) const;

  // Whether the straight way between two free points is free. Touching is.
  bool Sees(const Point& a, const Point& b) const;

  // Where a step from a free point ends. A step that hits something slides
  // along it with what is left of it, as Habitat's do.
  struct Move {
    Point end;
    bool collided = false;
  };
  Move Slide(const Point& from, double dx, double dy) const;

  // The way from everywhere to one goal.
  struct Goal {
    Point point;
    std::vector<double> from_corner;  // meters
  };

  // Of a free point.
  Goal MakeGoal(const Point& point) const;

  // The length of the shortest way, exact but for rounding. Infinite if there
  // is none. `next`, unless null, becomes where that way first bends, or the
  // goal.
  double DistanceTo(const Goal& goal, const Point& from,
                    Point* next = nullptr) const;

 private:
  // What is solid, grown by the body.
  struct Box {
    double x0, y0, x1, y1;
  };

  void FindBoxes();
  void FindCorners();
  bool HitsSolidCell(const Point& a, const Point& b) const;

  const FloorPlan plan_;
  std::vector<Box> boxes_;
  std::vector<Point> corners_;               // where a way may bend
  std::vector<std::vector<int>> seen_from_;  // corners, by corner
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_POINT_NAV_SPACE_H_
