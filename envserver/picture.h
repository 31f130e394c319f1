#ifndef FLOTILLA_ENVSERVER_PICTURE_H_
#define FLOTILLA_ENVSERVER_PICTURE_H_

#include <cstdint>
#include <span>

#include "flotilla/v1/env.pb.h"

namespace flotilla {

struct Color {
  uint8_t r = 0, g = 0, b = 0;
};

// What MultiAgentEnvironment::Render needs to draw with: filled shapes on a frame,
// each pixel theirs whose centre is inside. Coordinates are pixels, x to the right
// and y down, and may lie outside.
class Picture {
 public:
  struct Point {
    double x = 0, y = 0;
  };

  Picture(int width, int height, Color background);

  void Rectangle(Point one, Point other, Color color);
  // Convex, in either order of its corners.
  void Polygon(std::span<const Point> corners, Color color);
  // `width` pixels wide.
  void Line(Point from, Point to, double width, Color color);
  void Disc(Point centre, double radius, Color color);
  void Pixel(int x, int y, Color color);

  const v1::Frame& frame() const { return frame_; }

 private:
  // `inside` is asked of the centres of pixels between both.
  template <typename Inside>
  void Fill(Point low, Point high, Color color, Inside inside);

  v1::Frame frame_;
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_PICTURE_H_
