#include "learner/rollout/gather.h"

#include <deque>
#include <vector>

#include "gtest/gtest.h"
#include "learner/rollout/rollout.h"
#include "services/base/random.h"

namespace flotilla {
namespace {

Spaces Frames(int64_t stack) {
  Spaces s;
  s.frames = true;
  s.stack = stack;
  s.height = 3;
  s.width = 2;
  s.features = 6;
  s.actions = 4;
  return s;
}

// A rollout of random frames and episode starts, and what a frame-stack wrapper
// (a deque per row, filled with the reset frame) shows at each step.
struct Played {
  Rollout rollout;
  std::vector<std::vector<uint8_t>> stacks;  // [(T + 1) * B][k * H * W]
};

Played Play(const Spaces& s, int64_t T, int64_t B, uint64_t seed) {
  Played p{MakeRollout(s, T, B, /*pinned=*/false), {}};
  p.stacks.resize((T + 1) * B);
  Random rng(seed);
  uint8_t* frames = p.rollout.observation.data_ptr<uint8_t>();
  uint8_t* age = p.rollout.age.data_ptr<uint8_t>();
  for (int64_t b = 0; b < B; ++b) {
    std::deque<std::vector<uint8_t>> shown;
    // Older frames lie ahead of step 0 and belong to the same episode.
    int64_t since = 1000;
    for (int64_t f = 0; f < T + s.stack; ++f) {
      const int64_t t = f - FrameOffset(s);
      std::vector<uint8_t> frame(s.features);
      for (uint8_t& x : frame) x = static_cast<uint8_t>(rng.Below(256));
      std::copy(frame.begin(), frame.end(), frames + (f * B + b) * s.features);
      const bool reset = t >= 0 && rng.Below(4) == 0;
      if (reset) {
        since = 0;
        shown.assign(s.stack, frame);
      } else {
        ++since;
        shown.push_back(frame);
        if (static_cast<int64_t>(shown.size()) > s.stack) shown.pop_front();
      }
      if (t < 0) continue;
      age[t * B + b] =
          static_cast<uint8_t>(std::min<int64_t>(since, s.stack - 1));
      for (const auto& one : shown) {
        auto& stack = p.stacks[t * B + b];
        stack.insert(stack.end(), one.begin(), one.end());
      }
    }
  }
  return p;
}

TEST(GatherTest, StacksEqualAFrameStackWrapper) {
  for (int64_t k : {1, 2, 4}) {
    const Spaces s = Frames(k);
    const int64_t T = 17, B = 3;
    const Played p = Play(s, T, B, /*seed=*/k);
    std::vector<int32_t> index;
    for (int32_t i = (T + 1) * B - 1; i >= 0; --i) index.push_back(i);
    const torch::Tensor stacks = GatherObservations(
        p.rollout, s,
        torch::from_blob(index.data(), {static_cast<int64_t>(index.size())},
                         torch::kInt32));
    for (size_t m = 0; m < index.size(); ++m) {
      const uint8_t* got = stacks[m].data_ptr<uint8_t>();
      const auto& want = p.stacks[index[m]];
      ASSERT_EQ(want, std::vector<uint8_t>(got, got + want.size()))
          << "k " << k << " step " << index[m];
    }
  }
}

TEST(GatherTest, RowsOfOneStepEqualTheGatheredStacks) {
  const Spaces s = Frames(4);
  const int64_t T = 9, B = 5;
  const Played p = Play(s, T, B, /*seed=*/7);
  std::vector<uint8_t> out(3 * s.stack * s.features);
  StackRows(p.rollout, s, /*t=*/T, /*first=*/2, /*rows=*/3, out.data());
  for (int64_t r = 0; r < 3; ++r) {
    const auto& want = p.stacks[T * B + 2 + r];
    const auto got = out.begin() + r * s.stack * s.features;
    EXPECT_EQ(want, std::vector<uint8_t>(got, got + want.size()));
  }
}

TEST(GatherTest, FramesAreStoredOnce) {
  Spaces s = Frames(4);
  s.height = s.width = 84;
  s.features = 84 * 84;
  const Rollout r = MakeRollout(s, /*length=*/128, /*rows=*/8, false);
  EXPECT_EQ(r.observation.nbytes(), (128u + 4) * 8 * 84 * 84);
}

TEST(GatherTest, VectorsAreGatheredByRow) {
  Spaces s;
  s.features = 3;
  s.actions = 2;
  Rollout r = MakeRollout(s, /*length=*/4, /*rows=*/2, false);
  r.observation.copy_(torch::arange(5 * 2 * 3).view({5, 2, 3}));
  const torch::Tensor got =
      GatherObservations(r, s, torch::tensor({7, 0}, torch::kInt32));
  EXPECT_TRUE(
      torch::equal(got, torch::tensor({{21.f, 22.f, 23.f}, {0.f, 1.f, 2.f}})));
}

}  // namespace
}  // namespace flotilla
