#ifndef FLOTILLA_ENVSERVER_ENVS_POINT_NAV_PLAN_H_
#define FLOTILLA_ENVSERVER_ENVS_POINT_NAV_PLAN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace flotilla {

// What a cell of a floor plan holds. Space is free between two heights.
enum class PlanCell : uint8_t { kFree, kDoor, kFurniture, kWall };

// In meters: where a body or a ray meets nothing.
struct Gap {
  double low;
  double high;
};

inline constexpr double kCeiling = 2.6;

// By cell, but for walls. A door has a lintel, furniture is lower than the eye.
inline constexpr std::array<Gap, 3> kGaps = {Gap{0, kCeiling}, Gap{0, 2.0},
                                             Gap{0.7, kCeiling}};

// One story of a house: rooms between walls, joined by doors into a tree with
// few loops, and furniture that stands free. Cells [y][x] from 0; a point is in
// meters, from the corner of cell [0][0].
class FloorPlan {
 public:
  static constexpr int kSide = 56;       // cells
  static constexpr double kCell = 0.25;  // meters
  static constexpr int kDoorWidth = 3;   // cells

  // Nothing but the outer walls.
  FloorPlan();

  // Rooms, doors and furniture that follow `seed`.
  static FloorPlan Make(uint64_t seed);

  PlanCell at(int x, int y) const {
    return cells_[static_cast<size_t>(y * kSide + x)];
  }
  void set(int x, int y, PlanCell cell) {
    cells_[static_cast<size_t>(y * kSide + x)] = cell;
  }
  // A body cannot be there. True outside.
  bool IsSolid(int x, int y) const {
    if (x < 0 || y < 0 || x >= kSide || y >= kSide) return true;
    return at(x, y) == PlanCell::kFurniture || at(x, y) == PlanCell::kWall;
  }

  // Rooms made.
  int num_rooms() const { return num_rooms_; }

  bool operator==(const FloorPlan& other) const {
    return cells_ == other.cells_;
  }

 private:
  std::vector<PlanCell> cells_;
  int num_rooms_ = 1;
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_POINT_NAV_PLAN_H_
