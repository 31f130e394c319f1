#include "services/base/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace flotilla {
namespace {

using testing::ElementsAre;

TEST(CoresTest, PinningHoldsForWhatIsStartedLaterUntilItIsUndoneThere) {
  const std::vector<int> all = UsableCores();
  ASSERT_FALSE(all.empty());
  EXPECT_FALSE(IsPinned());
  EXPECT_FALSE(PinTo({}));
  EXPECT_FALSE(IsPinned());
  ASSERT_TRUE(PinTo({all.back()}));
  EXPECT_TRUE(IsPinned());
  EXPECT_THAT(UsableCores(), ElementsAre(all.back()));
  std::thread([&] {
    EXPECT_THAT(UsableCores(), ElementsAre(all.back()));
    Unpin();
    EXPECT_EQ(UsableCores(), all);
  }).join();
  EXPECT_THAT(UsableCores(), ElementsAre(all.back()));
  ASSERT_TRUE(PinTo({all.front()}));
  Unpin();
  EXPECT_EQ(UsableCores(), all);
}

}  // namespace
}  // namespace flotilla
