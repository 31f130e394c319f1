#include "envserver/envs/byte_map.h"

#include <gtest/gtest.h>

#include <vector>

#include "services/base/random.h"

namespace flotilla {
namespace {

TEST(MapBytesTest, EveryByteIsLookedUpAtEverySize) {
  Random random(1);
  uint8_t map[256];
  for (uint8_t& value : map) value = static_cast<uint8_t>(random.Below(256));
  for (size_t size : {0, 1, 63, 64, 65, 255, 256, 33600}) {
    std::vector<uint8_t> in(size), out(size + 1, 77);
    for (size_t i = 0; i < size; ++i) in[i] = static_cast<uint8_t>(i * 7);
    MapBytes(map, in.data(), size, out.data());
    for (size_t i = 0; i < size; ++i) ASSERT_EQ(out[i], map[in[i]]) << i;
    EXPECT_EQ(out[size], 77);
  }
}

}  // namespace
}  // namespace flotilla
