#include "launcher/chart.h"

#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace flotilla {
namespace {

using ::testing::AllOf;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ChartTest, TicksAreRoundNumbers) {
  EXPECT_THAT(NiceTicks(0, 100000, 5),
              ElementsAre(0, 20e3, 40e3, 60e3, 80e3, 100e3));
  EXPECT_THAT(NiceTicks(-21, 21, 6), ElementsAre(-20, -10, 0, 10, 20));
  EXPECT_THAT(NiceTicks(0.011, 0.019, 4),
              ElementsAre(DoubleEq(0.012), DoubleEq(0.014), DoubleEq(0.016),
                          DoubleEq(0.018)));
}

TEST(ChartTest, TicksOfATinyRangeAreFew) {
  EXPECT_LE(NiceTicks(0.1, std::nextafter(0.1, 1), 6).size(), 7u);
  EXPECT_LE(NiceTicks(1e15, 1e15 + 1, 8).size(), 9u);
}

TEST(ChartTest, TickTextsAreShort) {
  EXPECT_EQ(TickText(500), "500");
  EXPECT_EQ(TickText(250000), "250k");
  EXPECT_EQ(TickText(1500000), "1.5M");
  EXPECT_EQ(TickText(0.02), "0.02");
  EXPECT_EQ(TickText(-1e-17), "0");
}

TEST(ChartTest, APictureHasALineABandAndALegendForEachSeries) {
  const Chart chart = {.title = "return on <Env> & more",
                       .caption = "Mean",
                       .x_label = "steps",
                       .y_label = "return",
                       .series = {{"a=\"1\"", {{0, 1, 0, 2}, {10, 3, 2, 4}}},
                                  {"b", {{0, 2, 2, 2}, {10, 2, 2, 2}}}}};
  const std::string svg = SvgOf(chart);
  EXPECT_THAT(svg, AllOf(HasSubstr("return on &lt;Env&gt; &amp; more"),
                         HasSubstr(">a=&quot;1&quot;</text>"),
                         HasSubstr("#0072B2"), HasSubstr("#D55E00")));
  // y from 0 to 4, with a 25th of room on each side: 1 is at 44 + 3.16/4.32 x 380.
  EXPECT_THAT(svg, HasSubstr("d=\"M70.0,322.0L780.0,146.0\" fill=\"none\""));
}

TEST(ChartTest, OnePointIsADotAndAFlatLineHasRoom) {
  const Chart dot = {.title = "",
                     .caption = "",
                     .x_label = "",
                     .y_label = "",
                     .series = {{"a", {{5, 0, 0, 0}}}}};
  EXPECT_THAT(SvgOf(dot), AllOf(HasSubstr("<circle"), Not(HasSubstr("nan")),
                                Not(HasSubstr("inf"))));
  // Nor is it less flat for being rounded: a mean of equal values may be.
  const double rounded = std::nextafter(0.1, 1);
  const Chart constant = {
      .title = "",
      .caption = "",
      .x_label = "",
      .y_label = "",
      .series = {{"a", {{0, 0.1, 0.1, 0.1}, {10, rounded, rounded, rounded}}}}};
  EXPECT_THAT(SvgOf(constant), HasSubstr("d=\"M70.0,234.0L780.0,234.0\""));
  const Chart nothing = {
      .title = "", .caption = "", .x_label = "", .y_label = "", .series = {}};
  EXPECT_THAT(SvgOf(nothing), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace flotilla
