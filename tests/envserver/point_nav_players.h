#ifndef FLOTILLA_TESTS_ENVSERVER_POINT_NAV_PLAYERS_H_
#define FLOTILLA_TESTS_ENVSERVER_POINT_NAV_PLAYERS_H_

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>

#include "envserver/envs/point_nav_camera.h"
#include "envserver/envs/point_nav_space.h"
#include "services/base/random.h"

// Who plays PointNav without having learned it. Actions are PointNav::Action's.

namespace flotilla {

inline constexpr double kPlayerPi = 3.141592653589793;

// Turns from one angle to another, in headings: positive is left.
inline int TurnsTo(double radians) {
  return static_cast<int>(std::lround(radians * kHeadings / (2 * kPlayerPi)));
}

// Knows the plan: of all headings, turns to the one whose step leaves the
// shortest way. A turn costs a little, so that equal headings do not alternate.
class ShortestWay {
 public:
  int Act(const FreeSpace& space, const FreeSpace::Goal& goal, const Point& at,
          int heading) const {
    if (space.DistanceTo(goal, at) < 0.19) return 0;
    double best = std::numeric_limits<double>::infinity();
    int best_turns = 0;
    for (int turns = -kHeadings / 2; turns < kHeadings / 2; ++turns) {
      const Point ahead =
          DirectionOf((heading + turns + kHeadings) % kHeadings);
      const Point end = space.Slide(at, 0.25 * ahead.x, 0.25 * ahead.y).end;
      // Hit head on, an edge of a millimeter would hold it for ever.
      if (Distance(at, end) < 0.02) continue;
      const double left = space.DistanceTo(goal, end) + 1e-4 * std::abs(turns);
      if (left >= best) continue;
      best = left;
      best_turns = turns;
    }
    return best_turns == 0 ? 1 : best_turns > 0 ? 2 : 3;
  }
};

// Remembers the walls and the furniture that it has seen, takes all else for free,
// and goes the shortest way through that: what eyes and memory can do.
class Mapper {
 public:
  explicit Mapper(const Point& goal) : goal_(goal) { Plan(); }

  int Act(const FloorPlan& plan, const Point& at, int heading) {
    if (Look(plan, at, heading)) Plan();
    return ShortestWay().Act(*space_, way_, at, heading);
  }

 private:
  void Plan() {
    space_.emplace(known_);
    way_ = space_->MakeGoal(goal_);
  }

  // Along a ray for each half degree of what the camera sees, as far as it does.
  // Whether anything is new.
  bool Look(const FloorPlan& plan, const Point& at, int heading) {
    bool any_new = false;
    for (int half_degrees = -90; half_degrees <= 90; ++half_degrees) {
      const double off = half_degrees * kPlayerPi / 360;
      const double angle = heading * 2 * kPlayerPi / kHeadings + off;
      const double farthest = DepthCamera::kFarthest / std::cos(off);
      for (double away = 0; away < farthest; away += 0.04) {
        const int x = static_cast<int>((at.x + away * std::cos(angle)) /
                                       FloorPlan::kCell);
        const int y = static_cast<int>((at.y - away * std::sin(angle)) /
                                       FloorPlan::kCell);
        const PlanCell cell = plan.at(x, y);
        if (plan.IsSolid(x, y) && known_.at(x, y) != cell) {
          known_.set(x, y, cell);
          any_new = true;
        }
        if (cell == PlanCell::kWall) break;
      }
    }
    return any_new;
  }

  const Point goal_;
  FloorPlan known_;
  std::optional<FreeSpace> space_;
  FreeSpace::Goal way_;
};

// Sees nothing but the compass, and knows by it how far a step came: goes
// towards the goal, and along what is in the way, on one hand, until it is
// nearer than where it met it (DistBug). With `hands` it changes hands each
// time.
class Bug {
 public:
  explicit Bug(bool left_hand, bool change_hands = false)
      : left_hand_(left_hand), change_hands_(change_hands) {}

  int Act(double distance, double cosine, double sine) {
    if (distance < 0.19) return 0;
    const double angle = std::atan2(sine, cosine);
    const double gone = stepped_ ? Gone(distance, angle) : 0;
    if (stepped_) Learn(distance, gone);
    distance_ = distance;
    angle_ = angle;
    stepped_ = false;
    if (!follows_) turns_ = TurnsTo(angle);
    if (turns_ == 0) {
      stepped_ = true;
      return 1;
    }
    const int turn = turns_ > 0 ? 2 : 3;
    turns_ -= turns_ > 0 ? 1 : -1;
    return turn;
  }

 private:
  // By two looks at the goal from the same heading.
  double Gone(double distance, double angle) const {
    return std::hypot(
        distance * std::cos(angle) - distance_ * std::cos(angle_),
        distance * std::sin(angle) - distance_ * std::sin(angle_));
  }

  void Learn(double distance, double gone) {
    const bool hit = gone < 0.249;
    const int inwards = left_hand_ ? 1 : -1;
    if (!follows_) {
      if (gone > 0.1) return;  // slides on
      follows_ = true;
      met_at_ = distance;
      if (change_hands_) left_hand_ = !left_hand_;
      turns_ = left_hand_ ? -6 : 6;
      return;
    }
    if (distance < met_at_ - 0.5) {
      follows_ = false;
    } else if (!hit) {
      turns_ = 3 * inwards;  // the wall ended: around its corner
    } else if (gone < 0.12) {
      turns_ = -4 * inwards;  // another wall ahead
    }
  }

  bool left_hand_;
  const bool change_hands_;
  bool follows_ = false;
  bool stepped_ = false;
  int turns_ = 0;
  double met_at_ = 0;
  double distance_ = 0, angle_ = 0;
};

// As blind: towards the goal, sliding, and some steps anywhere once stuck.
class Bouncer {
 public:
  explicit Bouncer(uint64_t seed) : random_(seed) {}

  int Act(double distance, double cosine, double sine) {
    if (distance < 0.19) return 0;
    if (turns_ != 0) {
      const int turn = turns_ > 0 ? 2 : 3;
      turns_ -= turns_ > 0 ? 1 : -1;
      return turn;
    }
    if (away_ > 0) {
      --away_;
      last_ = distance + 1;
      return 1;
    }
    const int turns = TurnsTo(std::atan2(sine, cosine));
    if (turns != 0) return turns > 0 ? 2 : 3;
    if (last_ - distance < 0.05) {
      turns_ = static_cast<int>(random_.Below(kHeadings)) - kHeadings / 2;
      away_ = 4 + static_cast<int>(random_.Below(12));
      last_ = distance + 1;
      return Act(distance, cosine, sine);
    }
    last_ = distance;
    return 1;
  }

 private:
  Random random_;
  int turns_ = 0;
  int away_ = 0;
  double last_ = 1e9;
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_ENVSERVER_POINT_NAV_PLAYERS_H_
