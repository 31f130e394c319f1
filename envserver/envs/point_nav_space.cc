#include "envserver/envs/point_nav_space.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

namespace flotilla {
namespace {

constexpr double kCell = FloorPlan::kCell;
constexpr int kSide = FloorPlan::kSide;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Meters by which a body may overlap what it touches: hides rounding.
constexpr double kTouch = 1e-7;

int CellOf(double meters) {
  return static_cast<int>(std::floor(meters / kCell));
}

// 1 / d, finite.
double Inverse(double d) { return 1 / (std::abs(d) < 1e-12 ? 1e-12 : d); }

// Where the line from `a` is inside [low, high] along one axis.
struct Span {
  double begin, end;
};

// A way by a corner.
struct Entry {
  double length;
  size_t corner;
};

Span Inside(double a, double inverse, double low, double high) {
  const double first = (low - a) * inverse, second = (high - a) * inverse;
  return {std::min(first, second), std::max(first, second)};
}

}  // namespace

double Distance(const Point& a, const Point& b) {
  const double dx = a.x - b.x, dy = a.y - b.y;
  return std::sqrt(dx * dx + dy * dy);
}

FreeSpace::FreeSpace(const FloorPlan& plan) : plan_(plan) {
  FindBoxes();
  FindCorners();
}

// Rows of solid cells, those of the same ends merged.
void FreeSpace::FindBoxes() {
  struct Run {
    int x0, x1, y0, y1;
  };
  std::vector<Run> open;
  for (int y = 0; y <= kSide; ++y) {
    std::vector<Run> now;
    for (int x = 0; y < kSide && x < kSide; ++x) {
      if (!plan_.IsSolid(x, y)) continue;
      Run run{x, x, y, y + 1};
      while (run.x1 < kSide && plan_.IsSolid(run.x1, y)) ++run.x1;
      x = run.x1;
      const auto same =
          std::find_if(open.begin(), open.end(), [&](const Run& above) {
            return above.x0 == run.x0 && above.x1 == run.x1;
          });
      if (same != open.end()) {
        run.y0 = same->y0;
        open.erase(same);
      }
      now.push_back(run);
    }
    for (const Run& run : open) {
      boxes_.push_back({run.x0 * kCell - kBody, run.y0 * kCell - kBody,
                        run.x1 * kCell + kBody, run.y1 * kCell + kBody});
    }
    open = std::move(now);
  }
}

void FreeSpace::FindCorners() {
  for (int y = 1; y < kSide; ++y) {
    for (int x = 1; x < kSide; ++x) {
      // Solid on one of four sides: a corner that sticks out.
      int solid = 0;
      Point corner{x * kCell, y * kCell};
      for (const auto& [dx, dy] :
           {std::pair(-1, -1), {0, -1}, {-1, 0}, {0, 0}}) {
        if (!plan_.IsSolid(x + dx, y + dy)) continue;
        ++solid;
        corner.x = x * kCell + (dx == 0 ? -kBody : kBody);
        corner.y = y * kCell + (dy == 0 ? -kBody : kBody);
      }
      if (solid == 1 && IsFree(corner)) corners_.push_back(corner);
    }
  }
  seen_from_.resize(corners_.size());
  for (size_t i = 0; i < corners_.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!Sees(corners_[i], corners_[j])) continue;
      seen_from_[i].push_back(static_cast<int>(j));
      seen_from_[j].push_back(static_cast<int>(i));
    }
  }
}

bool FreeSpace::IsFree(const Point& point) const {
  constexpr double kReach = kBody - kTouch;
  for (int y = CellOf(point.y - kReach); y <= CellOf(point.y + kReach); ++y) {
    for (int x = CellOf(point.x - kReach); x <= CellOf(point.x + kReach); ++x) {
      if (plan_.IsSolid(x, y)) return false;
    }
  }
  return true;
}

// The middle alone, cell by cell: most of what is hidden is behind a wall
// nearby.
bool FreeSpace::HitsSolidCell(const Point& a, const Point& b) const {
  int x = CellOf(a.x), y = CellOf(a.y);
  const int to_x = CellOf(b.x), to_y = CellOf(b.y);
  const double dx = b.x - a.x, dy = b.y - a.y;
  const double per_x = kCell * std::abs(Inverse(dx));
  const double per_y = kCell * std::abs(Inverse(dy));
  const int step_x = dx < 0 ? -1 : 1, step_y = dy < 0 ? -1 : 1;
  double next_x =
      std::abs((x + (dx < 0 ? 0 : 1)) * kCell - a.x) * per_x / kCell;
  double next_y =
      std::abs((y + (dy < 0 ? 0 : 1)) * kCell - a.y) * per_y / kCell;
  for (int left = std::abs(to_x - x) + std::abs(to_y - y); left > 0; --left) {
    if (next_x < next_y) {
      x += step_x;
      next_x += per_x;
    } else {
      y += step_y;
      next_y += per_y;
    }
    if (plan_.IsSolid(x, y)) return true;
  }
  return false;
}

bool FreeSpace::Sees(const Point& a, const Point& b) const {
  if (HitsSolidCell(a, b)) return false;
  const double inverse_x = Inverse(b.x - a.x), inverse_y = Inverse(b.y - a.y);
  const double left = std::min(a.x, b.x), right = std::max(a.x, b.x);
  const double top = std::min(a.y, b.y), bottom = std::max(a.y, b.y);
  for (const Box& box : boxes_) {
    if (box.x1 < left || box.x0 > right || box.y1 < top || box.y0 > bottom) {
      continue;
    }
    const Span x = Inside(a.x, inverse_x, box.x0 + kTouch, box.x1 - kTouch);
    const Span y = Inside(a.y, inverse_y, box.y0 + kTouch, box.y1 - kTouch);
    if (std::max({x.begin, y.begin, 0.0}) < std::min({x.end, y.end, 1.0})) {
      return false;
    }
  }
  return true;
}

FreeSpace::Move FreeSpace::Slide(const Point& from, double dx,
                                 double dy) const {
  Move move{from, false};
  // Along two sides of a corner at most.
  for (int i = 0; i < 3 && (dx != 0 || dy != 0); ++i) {
    const double inverse_x = Inverse(dx), inverse_y = Inverse(dy);
    double hit = 1;
    bool along_x = false;  // what is hit runs along x
    double side = 0;       // and where it is
    const int x0 = CellOf(std::min(move.end.x, move.end.x + dx) - kBody);
    const int x1 = CellOf(std::max(move.end.x, move.end.x + dx) + kBody);
    const int y0 = CellOf(std::min(move.end.y, move.end.y + dy) - kBody);
    const int y1 = CellOf(std::max(move.end.y, move.end.y + dy) + kBody);
    for (int cell_y = y0; cell_y <= y1; ++cell_y) {
      for (int cell_x = x0; cell_x <= x1; ++cell_x) {
        if (!plan_.IsSolid(cell_x, cell_y)) continue;
        const Box box{cell_x * kCell - kBody, cell_y * kCell - kBody,
                      (cell_x + 1) * kCell + kBody,
                      (cell_y + 1) * kCell + kBody};
        const Span x =
            Inside(move.end.x, inverse_x, box.x0 + kTouch, box.x1 - kTouch);
        const Span y =
            Inside(move.end.y, inverse_y, box.y0 + kTouch, box.y1 - kTouch);
        const double begin = std::max(x.begin, y.begin);
        if (begin >= std::min({x.end, y.end, hit}) || x.end <= 0 ||
            y.end <= 0) {
          continue;
        }
        hit = std::max(begin, 0.0);
        along_x = y.begin > x.begin;
        if (along_x) {
          side = dy > 0 ? box.y0 : box.y1;
        } else {
          side = dx > 0 ? box.x0 : box.x1;
        }
      }
    }
    move.end.x += hit * dx;
    move.end.y += hit * dy;
    if (hit >= 1) break;
    move.collided = true;
    dx *= 1 - hit;
    dy *= 1 - hit;
    (along_x ? dy : dx) = 0;
    (along_x ? move.end.y : move.end.x) = side;
  }
  return move;
}

FreeSpace::Goal FreeSpace::MakeGoal(const Point& point) const {
  Goal goal{point, std::vector<double>(corners_.size(), kInfinity)};
  using Reached = std::pair<double, int>;
  std::priority_queue<Reached, std::vector<Reached>, std::greater<>> queue;
  const auto reach = [&](int corner, double distance) {
    if (distance >= goal.from_corner[corner]) return;
    goal.from_corner[corner] = distance;
    queue.emplace(distance, corner);
  };
  for (size_t i = 0; i < corners_.size(); ++i) {
    if (Sees(point, corners_[i])) {
      reach(static_cast<int>(i), Distance(point, corners_[i]));
    }
  }
  while (!queue.empty()) {
    const auto [distance, corner] = queue.top();
    queue.pop();
    if (distance > goal.from_corner[corner]) continue;
    for (const int other : seen_from_[corner]) {
      reach(other, distance + Distance(corners_[corner], corners_[other]));
    }
  }
  return goal;
}

double FreeSpace::DistanceTo(const Goal& goal, const Point& from,
                             Point* next) const {
  if (next != nullptr) *next = goal.point;
  if (Sees(from, goal.point)) return Distance(from, goal.point);
  // The shortest first, until one can be seen.
  thread_local std::vector<Entry> ways;
  ways.clear();
  for (size_t i = 0; i < corners_.size(); ++i) {
    ways.push_back({Distance(from, corners_[i]) + goal.from_corner[i], i});
  }
  const auto longer = [](const Entry& a, const Entry& b) {
    return a.length > b.length;
  };
  std::make_heap(ways.begin(), ways.end(), longer);
  for (; !ways.empty(); ways.pop_back()) {
    std::pop_heap(ways.begin(), ways.end(), longer);
    const Point& corner = corners_[ways.back().corner];
    if (!Sees(from, corner)) continue;
    if (next != nullptr) *next = corner;
    return ways.back().length;
  }
  return kInfinity;
}

}  // namespace flotilla
