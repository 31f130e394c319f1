#include "envserver/envs/point_nav_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "services/base/random.h"

namespace flotilla {
namespace {

constexpr int kSide = FloorPlan::kSide;
constexpr int kDoorWidth = FloorPlan::kDoorWidth;
constexpr int kLeastRoom = 8;  // cells along a side
constexpr int kLargestRoom =
    16;                          // at least two of the least and a wall, less 1
constexpr double kLoops = 0.08;  // share of the walls left that get a door too
constexpr int kAisle = 3;        // cells between furniture and anything else

struct Room {
  int x, y, width, height;
};

// A place for a door: the first cell of a wall between two rooms, and which way
// the wall runs.
struct Opening {
  int x, y;
  bool along_x;
};

int Between(Random* random, int low, int high) {
  return low +
         static_cast<int>(random->Below(static_cast<uint64_t>(high - low + 1)));
}

// Splits what is too large by walls one cell thick.
void Split(const Room& room, Random* random, std::vector<Room>* rooms) {
  const bool wide = room.width > room.height;
  const int length = wide ? room.width : room.height;
  if (length <= kLargestRoom) {
    rooms->push_back(room);
    return;
  }
  const int wall = Between(random, kLeastRoom, length - kLeastRoom - 1);
  Room first = room, second = room;
  (wide ? first.width : first.height) = wall;
  (wide ? second.x : second.y) += wall + 1;
  (wide ? second.width : second.height) -= wall + 1;
  Split(first, random, rooms);
  Split(second, random, rooms);
}

class Builder {
 public:
  explicit Builder(uint64_t seed) : random_(seed) {}

  std::pair<FloorPlan, int> Build() {
    Split({1, 1, kSide - 2, kSide - 2}, &random_, &rooms_);
    room_of_.assign(kSide * kSide, -1);
    for (int y = 0; y < kSide; ++y) {
      for (int x = 0; x < kSide; ++x) plan_.set(x, y, PlanCell::kWall);
    }
    for (size_t i = 0; i < rooms_.size(); ++i) {
      const Room& room = rooms_[i];
      for (int y = room.y; y < room.y + room.height; ++y) {
        for (int x = room.x; x < room.x + room.width; ++x) {
          plan_.set(x, y, PlanCell::kFree);
          room_of_[y * kSide + x] = static_cast<int>(i);
        }
      }
    }
    JoinRooms();
    for (const Room& room : rooms_) Furnish(room);
    return {plan_, static_cast<int>(rooms_.size())};
  }

 private:
  int RoomOf(int x, int y) const { return room_of_[y * kSide + x]; }

  // The rooms on both sides of a wall cell; equal where there are not two.
  std::pair<int, int> Sides(int x, int y, bool along_x) const {
    const int a = along_x ? RoomOf(x, y - 1) : RoomOf(x - 1, y);
    const int b = along_x ? RoomOf(x, y + 1) : RoomOf(x + 1, y);
    if (a < 0 || b < 0 || RoomOf(x, y) >= 0) return {-1, -1};
    return {a, b};
  }

  // Every place where a door has a cell of wall on either side.
  std::map<std::pair<int, int>, std::vector<Opening>> Openings() const {
    std::map<std::pair<int, int>, std::vector<Opening>> openings;
    for (const bool along_x : {true, false}) {
      for (int y = 1; y < kSide - 1; ++y) {
        for (int x = 1; x < kSide - 1; ++x) {
          const auto sides = Sides(x, y, along_x);
          bool fits = sides.first != sides.second;
          for (int i = -1; fits && i <= kDoorWidth; ++i) {
            const int to_x = along_x ? x + i : x, to_y = along_x ? y : y + i;
            fits = to_x > 0 && to_y > 0 && to_x < kSide - 1 &&
                   to_y < kSide - 1 && Sides(to_x, to_y, along_x) == sides;
          }
          if (fits) openings[sides].push_back({x, y, along_x});
        }
      }
    }
    return openings;
  }

  // Doors along a random spanning tree, and a few more.
  void JoinRooms() {
    const auto openings = Openings();
    std::vector<std::pair<int, int>> walls;
    for (const auto& [sides, places] : openings) walls.push_back(sides);
    for (size_t i = walls.size(); i > 1; --i) {
      std::swap(walls[i - 1], walls[random_.Below(i)]);
    }
    std::vector<int> group(rooms_.size());
    std::iota(group.begin(), group.end(), 0);
    for (const auto& sides : walls) {
      const int a = group[sides.first], b = group[sides.second];
      const bool loop = random_.Uniform() < kLoops;
      const auto& places = openings.at(sides);
      const Opening& door = places[random_.Below(places.size())];
      if (a == b && !loop) continue;
      std::replace(group.begin(), group.end(), a, b);
      for (int i = 0; i < kDoorWidth; ++i) {
        plan_.set(door.along_x ? door.x + i : door.x,
                  door.along_x ? door.y : door.y + i, PlanCell::kDoor);
      }
    }
  }

  // Never in the way to a door: an aisle is left on all sides.
  void Furnish(const Room& room) {
    const int width = Between(&random_, 1, 4), height = Between(&random_, 1, 4);
    const int free_x = room.width - width - 2 * kAisle;
    const int free_y = room.height - height - 2 * kAisle;
    if (free_x < 0 || free_y < 0) return;
    const int left = room.x + kAisle + Between(&random_, 0, free_x);
    const int top = room.y + kAisle + Between(&random_, 0, free_y);
    for (int y = top; y < top + height; ++y) {
      for (int x = left; x < left + width; ++x) {
        plan_.set(x, y, PlanCell::kFurniture);
      }
    }
  }

  Random random_;
  FloorPlan plan_;
  std::vector<Room> rooms_;
  std::vector<int> room_of_;  // -1: wall
};

}  // namespace

FloorPlan::FloorPlan() : cells_(kSide * kSide, PlanCell::kFree) {
  for (int i = 0; i < kSide; ++i) {
    set(i, 0, PlanCell::kWall);
    set(i, kSide - 1, PlanCell::kWall);
    set(0, i, PlanCell::kWall);
    set(kSide - 1, i, PlanCell::kWall);
  }
}

FloorPlan FloorPlan::Make(uint64_t seed) {
  auto [plan, rooms] = Builder(seed).Build();
  plan.num_rooms_ = rooms;
  return plan;
}

}  // namespace flotilla
