#ifndef FLOTILLA_ENVSERVER_ENVS_POINT_NAV_CAMERA_H_
#define FLOTILLA_ENVSERVER_ENVS_POINT_NAV_CAMERA_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "envserver/envs/point_nav_plan.h"
#include "envserver/envs/point_nav_space.h"

namespace flotilla {

// Headings are multiples of the turn: 0 is along x, and a turn to the left adds
// one. y points down in a plan: left of x is towards smaller y.
inline constexpr int kHeadings = 36;

// A unit vector.
Point DirectionOf(int heading);

// A depth camera of 90 by 90 degrees, 64 x 64 pixels, level at the eye's
// height: Habitat's. Depth is along the axis of view, as in its images: 0 to 10
// m as 0 to 255, farther as 255.
//
// Each column is one ray through the plan's cells, which keeps the rows that
// have not met anything: a span that closes from below and above as the ray
// meets floor, furniture, lintels and ceiling, and is empty at a wall.
//
// Thread-safe.
class DepthCamera {
 public:
  static constexpr int kPixels = 64;       // along a side
  static constexpr double kEye = 1.25;     // meters above the floor
  static constexpr double kFarthest = 10;  // meters

  DepthCamera();

  // Writes kPixels * kPixels bytes, row by row from the top left, seen from a
  // point that is free.
  void Render(const FloorPlan& plan, const Point& eye, int heading,
              std::span<std::byte> image) const;

  // The pixel of a depth in meters.
  static uint8_t PixelOf(double depth);

 private:
  struct Ray {
    float per_x, per_y;  // depth from one cell's side to the next
    int step_x, step_y;  // -1, 1
  };
  // Depth where each row meets floor and ceiling of one kind of cell; infinite
  // where it never does.
  struct Planes {
    std::array<float, kPixels> depth;
    std::array<uint8_t, kPixels> pixel;
  };

  std::vector<Ray> rays_;                    // [heading, column]
  std::array<Planes, kGaps.size()> planes_;  // by PlanCell
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_POINT_NAV_CAMERA_H_
