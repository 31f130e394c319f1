#include "launcher/chart.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace flotilla {
namespace {

constexpr double kWidth = 800, kPlotHeight = 380;
constexpr double kLeft = 70, kRight = 20, kTop = 44, kBelow = 54;
constexpr double kLegendLine = 20;

// Okabe and Ito's, which colour-blind people can tell apart; darkest first.
constexpr const char* kColours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                    "#E69F00", "#56B4E9", "#000000", "#B8A900"};
constexpr const char* kDashes[] = {"none", "8 4", "2 3", "10 3 2 3"};

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // So that there is something between its ends, also of a constant that is one but
  // for rounding.
  void Widen() {
    if (low > high) low = 0, high = 1;
    if (high - low > 1e-9 * std::max(std::abs(low), std::abs(high))) return;
    const double around = low == 0 ? 1 : std::abs(low) / 10;
    low -= around;
    high += around;
  }
};

// Where a chart's numbers are on the paper.
struct Frame {
  Range x, y;

  double X(double value) const {
    return kLeft +
           (value - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight);
  }
  double Y(double value) const {
    return kTop + (y.high - value) / (y.high - y.low) * kPlotHeight;
  }
  std::string At(double px, double py) const {
    return absl::StrFormat("%.1f,%.1f", X(px), Y(py));
  }
};

Frame FrameOf(const Chart& chart) {
  Frame frame;
  for (const Chart::Series& series : chart.series) {
    for (const Chart::Point& point : series.points) {
      frame.x.Take(point.x);
      for (double value : {point.y, point.low, point.high}) {
        frame.y.Take(value);
      }
    }
  }
  frame.x.Widen();
  frame.y.Widen();
  const double room = (frame.y.high - frame.y.low) / 25;
  frame.y.low -= room;
  frame.y.high += room;
  return frame;
}

void AppendText(double x, double y, const std::string& more,
                const std::string& text, std::string* svg) {
  absl::StrAppendFormat(svg, "<text x=\"%.1f\" y=\"%.1f\"%s>%s</text>\n", x, y,
                        more, XmlText(text));
}

void AppendAxes(const Chart& chart, const Frame& frame, std::string* svg) {
  const double bottom = kTop + kPlotHeight, right = kWidth - kRight;
  absl::StrAppend(svg, "<g stroke=\"#888\" stroke-opacity=\"0.3\">\n");
  const auto x_ticks = NiceTicks(frame.x.low, frame.x.high, 8);
  const auto y_ticks = NiceTicks(frame.y.low, frame.y.high, 6);
  for (double tick : x_ticks) {
    absl::StrAppendFormat(svg, "<path d=\"M%.1f,%.1fV%.1f\"/>\n", frame.X(tick),
                          kTop, bottom);
  }
  for (double tick : y_ticks) {
    absl::StrAppendFormat(svg, "<path d=\"M%.1f,%.1fH%.1f\"/>\n", kLeft,
                          frame.Y(tick), right);
  }
  absl::StrAppend(svg, "</g>\n");
  for (double tick : x_ticks) {
    AppendText(frame.X(tick), bottom + 18, " text-anchor=\"middle\"",
               TickText(tick), svg);
  }
  for (double tick : y_ticks) {
    AppendText(kLeft - 8, frame.Y(tick) + 4, " text-anchor=\"end\"",
               TickText(tick), svg);
  }
  AppendText((kLeft + right) / 2, bottom + 40, " text-anchor=\"middle\"",
             chart.x_label, svg);
  AppendText(18, kTop + kPlotHeight / 2,
             absl::StrFormat(" text-anchor=\"middle\" transform=\"rotate(-90 "
                             "18 %.1f)\"",
                             kTop + kPlotHeight / 2),
             chart.y_label, svg);
}

std::string ColourOf(size_t series) {
  return kColours[series % std::size(kColours)];
}

std::string DashOf(size_t series) {
  return kDashes[series / std::size(kColours) % std::size(kDashes)];
}

void AppendSeries(const Chart::Series& series, size_t index, const Frame& frame,
                  std::string* svg) {
  const std::string colour = ColourOf(index);
  absl::StrAppend(svg, "<g><title>", XmlText(series.label), "</title>\n");
  if (series.points.size() == 1) {
    const Chart::Point& point = series.points[0];
    absl::StrAppendFormat(
        svg,
        "<path d=\"M%sL%s\" stroke=\"%s\" stroke-width=\"2\"/>\n"
        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n",
        frame.At(point.x, point.low), frame.At(point.x, point.high), colour,
        frame.X(point.x), frame.Y(point.y), colour);
  } else {
    std::string band, line;
    for (const Chart::Point& point : series.points) {
      absl::StrAppend(&line, line.empty() ? "M" : "L",
                      frame.At(point.x, point.y));
      absl::StrAppend(&band, band.empty() ? "M" : "L",
                      frame.At(point.x, point.high));
    }
    for (auto point = series.points.rbegin(); point != series.points.rend();
         ++point) {
      absl::StrAppend(&band, "L", frame.At(point->x, point->low));
    }
    absl::StrAppendFormat(
        svg,
        "<path d=\"%sZ\" fill=\"%s\" fill-opacity=\"0.18\"/>\n"
        "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\" "
        "stroke-dasharray=\"%s\"/>\n",
        band, colour, line, colour, DashOf(index));
  }
  absl::StrAppend(svg, "</g>\n");
}

}  // namespace

std::vector<double> NiceTicks(double low, double high, int count) {
  const double least = (high - low) / count;
  const double power = std::pow(10, std::floor(std::log10(least)));
  double step = 10 * power;
  for (double times : {5, 2, 1}) {
    if (times * power >= least * 0.999) step = times * power;
  }
  std::vector<double> ticks;
  const double first = std::ceil(low / step);
  // Counted: where the range is tiny beside its values, one more may change nothing.
  for (int i = 0; i <= count && (first + i) * step <= high; ++i) {
    ticks.push_back((first + i) * step);
  }
  return ticks;
}

std::string TickText(double value) {
  const double size = std::abs(value);
  if (size >= 1e9) return absl::StrFormat("%gG", value / 1e9);
  if (size >= 1e6) return absl::StrFormat("%gM", value / 1e6);
  if (size >= 1e4) return absl::StrFormat("%gk", value / 1e3);
  return absl::StrFormat("%g", size < 1e-12 ? 0 : value);
}

std::string XmlText(const std::string& text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string SvgOf(const Chart& chart) {
  const Frame frame = FrameOf(chart);
  const double legend = kTop + kPlotHeight + kBelow;
  const double height =
      legend + kLegendLine * static_cast<double>(chart.series.size() + 1);
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
      "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
      "font-size=\"13\" fill=\"#222\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
      kWidth, height, kWidth, height);
  AppendText(kLeft, 26, " font-size=\"16\"", chart.title, &svg);
  AppendAxes(chart, frame, &svg);
  for (size_t i = 0; i < chart.series.size(); ++i) {
    AppendSeries(chart.series[i], i, frame, &svg);
  }
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const double y = legend + kLegendLine * static_cast<double>(i);
    absl::StrAppendFormat(
        &svg,
        "<path d=\"M%.1f,%.1fh28\" stroke=\"%s\" stroke-width=\"3\" "
        "stroke-dasharray=\"%s\"/>\n",
        kLeft, y + 6, ColourOf(i), DashOf(i));
    AppendText(kLeft + 36, y + 10, "", chart.series[i].label, &svg);
  }
  AppendText(kLeft, height - 8, " font-size=\"11\" fill=\"#666\"",
             chart.caption, &svg);
  return svg + "</svg>\n";
}

}  // namespace flotilla
