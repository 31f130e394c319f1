#ifndef FLOTILLA_LAUNCHER_CHART_H_
#define FLOTILLA_LAUNCHER_CHART_H_

#include <string>
#include <vector>

namespace flotilla {

// Lines with bands around them, as a picture. Written by ourselves, so that
// every host has it: a node of a cluster has no Python with a plotting library.
struct Chart {
  struct Point {
    double x = 0, y = 0, low = 0, high = 0;
  };
  struct Series {
    std::string label;
    std::vector<Point> points;  // by x; one alone is a dot
  };

  std::string title, caption;
  std::string x_label, y_label;
  std::vector<Series> series;
};

// Numbers a step of 1, 2 or 5 times a power of ten apart that lie from `low` to
// `high`, about `count` of them.
std::vector<double> NiceTicks(double low, double high, int count);

// "250k", "1.5M", "0.02"
std::string TickText(double value);

// &, <, > and quotes as XML and HTML have them.
std::string XmlText(const std::string& text);

// A whole SVG file.
std::string SvgOf(const Chart& chart);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_CHART_H_
