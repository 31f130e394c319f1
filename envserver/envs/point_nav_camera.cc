#include "envserver/envs/point_nav_camera.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace flotilla {
namespace {

constexpr int kPixels = DepthCamera::kPixels;
constexpr double kPi = 3.141592653589793;

// Where a column or row looks: -1 to 1 over 90 degrees, at depth 1.
double Slope(int pixel) { return (pixel + 0.5) / (kPixels / 2.0) - 1; }

}  // namespace

Point DirectionOf(int heading) {
  const double angle = heading * (2 * kPi / kHeadings);
  return {std::cos(angle), -std::sin(angle)};
}

uint8_t DepthCamera::PixelOf(double depth) {
  return static_cast<uint8_t>(std::min(depth / kFarthest, 1.0) * 255 + 0.5);
}

DepthCamera::DepthCamera() {
  for (int heading = 0; heading < kHeadings; ++heading) {
    const Point ahead = DirectionOf(heading);
    for (int column = 0; column < kPixels; ++column) {
      // To the right of ahead is (-ahead.y, ahead.x), with y down.
      const double slope = Slope(column);
      const double dx = ahead.x - slope * ahead.y;
      const double dy = ahead.y + slope * ahead.x;
      const auto per = [](double d) {
        return static_cast<float>(FloorPlan::kCell /
                                  std::max(std::abs(d), 1e-9));
      };
      rays_.push_back({per(dx), per(dy), dx < 0 ? -1 : 1, dy < 0 ? -1 : 1});
    }
  }
  for (size_t kind = 0; kind < planes_.size(); ++kind) {
    for (int row = 0; row < kPixels; ++row) {
      const double down = Slope(row);
      const double depth = down > 0 ? (kEye - kGaps[kind].low) / down
                                    : (kGaps[kind].high - kEye) / -down;
      planes_[kind].depth[row] = static_cast<float>(depth);
      planes_[kind].pixel[row] = PixelOf(depth);
    }
  }
}

void DepthCamera::Render(const FloorPlan& plan, const Point& eye, int heading,
                         std::span<std::byte> image) const {
  auto* const pixels = reinterpret_cast<uint8_t*>(image.data());
  const double eye_x = eye.x / FloorPlan::kCell;
  const double eye_y = eye.y / FloorPlan::kCell;
  const int begin_x = static_cast<int>(eye_x);
  const int begin_y = static_cast<int>(eye_y);
  const auto part_x = static_cast<float>(eye_x - begin_x);
  const auto part_y = static_cast<float>(eye_y - begin_y);
  for (int column = 0; column < kPixels; ++column) {
    const Ray& ray = rays_[static_cast<size_t>(heading * kPixels + column)];
    uint8_t* const out = pixels + column;
    int x = begin_x, y = begin_y;
    float next_x = (ray.step_x < 0 ? part_x : 1 - part_x) * ray.per_x;
    float next_y = (ray.step_y < 0 ? part_y : 1 - part_y) * ray.per_y;
    PlanCell kind = plan.at(x, y);
    const Planes* planes = &planes_[static_cast<size_t>(kind)];
    int top = 0, bottom = kPixels - 1;  // rows that have met nothing
    while (true) {
      float depth;
      if (next_x < next_y) {
        depth = next_x;
        x += ray.step_x;
        next_x += ray.per_x;
      } else {
        depth = next_y;
        y += ray.step_y;
        next_y += ray.per_y;
      }
      const PlanCell entered = plan.at(x, y);
      if (entered == kind && depth < kFarthest) continue;
      // What meets floor or ceiling before this cell,
      for (; bottom >= kPixels / 2 && planes->depth[bottom] <= depth;
           --bottom) {
        out[bottom * kPixels] = planes->pixel[bottom];
      }
      for (; top < kPixels / 2 && planes->depth[top] <= depth; ++top) {
        out[top * kPixels] = planes->pixel[top];
      }
      const uint8_t pixel = PixelOf(depth);
      if (entered == PlanCell::kWall || depth >= kFarthest) {
        for (int row = top; row <= bottom; ++row) out[row * kPixels] = pixel;
        break;
      }
      // and what meets its front: rows that would be below its floor by now, or
      // above its ceiling.
      kind = entered;
      planes = &planes_[static_cast<size_t>(kind)];
      for (; bottom >= kPixels / 2 && planes->depth[bottom] < depth; --bottom) {
        out[bottom * kPixels] = pixel;
      }
      for (; top < kPixels / 2 && planes->depth[top] < depth; ++top) {
        out[top * kPixels] = pixel;
      }
    }
  }
}

}  // namespace flotilla
