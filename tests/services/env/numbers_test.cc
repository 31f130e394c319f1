#include "services/env/numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// As they may lie in a message: at any address.
std::span<const std::byte> Unaligned(const std::vector<float>& values,
                                     std::string* memory) {
  memory->assign(1, 'x');
  memory->append(reinterpret_cast<const char*>(values.data()),
                 values.size() * sizeof(float));
  return std::as_bytes(std::span(*memory)).subspan(1);
}

TEST(NumbersTest, OneBadNumberIsFoundWhereverItIs) {
  const float good[] = {0.0f,   -0.0f,
                        1.0f,   1e18f,
                        -1e18f, std::numeric_limits<float>::denorm_min()};
  const float bad[] = {
      kNan,  -kNan, kInfinity, -kInfinity, std::nextafter(1e18f, kInfinity),
      -3e38f};
  std::string memory;
  for (size_t size = 0; size < 70; ++size) {
    std::vector<float> values(size);
    for (size_t i = 0; i < size; ++i) values[i] = good[i % std::size(good)];
    ASSERT_TRUE(AllUsable(Unaligned(values, &memory))) << size;
    ASSERT_TRUE(CheckNumbers("x", Unaligned(values, &memory)).ok());
    for (size_t at = 0; at < size; ++at) {
      const float before = values[at];
      values[at] = bad[(size + at) % std::size(bad)];
      ASSERT_FALSE(AllUsable(Unaligned(values, &memory))) << size << " " << at;
      const std::string message(
          CheckNumbers("x", Unaligned(values, &memory)).message());
      const std::string want =
          size == 1 ? absl::StrCat("x is ", values[at])
                    : absl::StrCat("x, element ", at, ", is ", values[at]);
      ASSERT_EQ(message.substr(0, want.size()), want);
      values[at] = before;
    }
  }
}

TEST(NumbersTest, DoublesHaveTheSameBound) {
  for (double good : {0.0, 1e18, -1e17}) EXPECT_TRUE(IsUsable(good));
  for (double bad : {1.1e18, -1e300, double{kNan}, double{kInfinity}}) {
    EXPECT_FALSE(IsUsable(bad)) << bad;
  }
}

}  // namespace
}  // namespace flotilla
