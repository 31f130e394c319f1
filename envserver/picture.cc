#include "envserver/picture.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace flotilla {

Picture::Picture(int width, int height, Color background) {
  frame_.set_width(width);
  frame_.set_height(height);
  frame_.mutable_rgb()->resize(size_t{3} * width * height);
  Rectangle({0, 0}, {double(width), double(height)}, background);
}

void Picture::Pixel(int x, int y, Color color) {
  if (x < 0 || x >= frame_.width() || y < 0 || y >= frame_.height()) return;
  char* to = frame_.mutable_rgb()->data() +
             3 * (static_cast<size_t>(y) * frame_.width() + x);
  to[0] = static_cast<char>(color.r);
  to[1] = static_cast<char>(color.g);
  to[2] = static_cast<char>(color.b);
}

template <typename Inside>
void Picture::Fill(Point low, Point high, Color color, Inside inside) {
  const auto first = [](double at) {
    return static_cast<int>(std::max(0.0, std::floor(at)));
  };
  const auto last = [](double at, int most) {
    return static_cast<int>(std::min(double(most), std::ceil(at)));
  };
  for (int y = first(low.y); y < last(high.y, frame_.height()); ++y) {
    for (int x = first(low.x); x < last(high.x, frame_.width()); ++x) {
      if (inside(x + 0.5, y + 0.5)) Pixel(x, y, color);
    }
  }
}

void Picture::Rectangle(Point one, Point other, Color color) {
  const Point low = {std::min(one.x, other.x), std::min(one.y, other.y)};
  const Point high = {std::max(one.x, other.x), std::max(one.y, other.y)};
  Fill(low, high, color, [&](double x, double y) {
    return x >= low.x && x < high.x && y >= low.y && y < high.y;
  });
}

void Picture::Polygon(std::span<const Point> corners, Color color) {
  constexpr double kFar = std::numeric_limits<double>::max();
  Point low = {kFar, kFar}, high = {-kFar, -kFar};
  for (const Point& corner : corners) {
    low = {std::min(low.x, corner.x), std::min(low.y, corner.y)};
    high = {std::max(high.x, corner.x), std::max(high.y, corner.y)};
  }
  Fill(low, high, color, [&](double x, double y) {
    bool left = true, right = true;
    for (size_t i = 0; i < corners.size(); ++i) {
      const Point& a = corners[i];
      const Point& b = corners[(i + 1) % corners.size()];
      const double side = (b.x - a.x) * (y - a.y) - (b.y - a.y) * (x - a.x);
      left = left && side >= 0;
      right = right && side <= 0;
    }
    return left || right;
  });
}

void Picture::Line(Point from, Point to, double width, Color color) {
  const double length = std::hypot(to.x - from.x, to.y - from.y);
  if (length == 0) return Disc(from, width / 2, color);
  const double x = (to.y - from.y) / length * width / 2;
  const double y = (from.x - to.x) / length * width / 2;
  const Point corners[] = {{from.x + x, from.y + y},
                           {to.x + x, to.y + y},
                           {to.x - x, to.y - y},
                           {from.x - x, from.y - y}};
  Polygon(corners, color);
}

void Picture::Disc(Point centre, double radius, Color color) {
  Fill({centre.x - radius, centre.y - radius},
       {centre.x + radius, centre.y + radius}, color, [&](double x, double y) {
         return std::hypot(x - centre.x, y - centre.y) <= radius;
       });
}

}  // namespace flotilla
