#include "learner/kernels/frame_ops.h"

#include <deque>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/learner/kernels/every_kernel_test.h"

namespace flotilla {
namespace {

using Frame = std::vector<uint8_t>;

// Plays environments with random episodes, stacking frames as an environment
// wrapper does, and stores what a rollout would.
class Play {
 public:
  Play(int64_t length, int64_t rows, int64_t pixels, int64_t stack,
       double episode_end)
      : length_(length), rows_(rows), pixels_(pixels), stack_(stack) {
    frames_.resize((length + stack - 1) * rows * pixels);
    age_.resize(length * rows);
    stacks_.resize(length * rows);
    for (int64_t b = 0; b < rows; ++b) PlayRow(b, episode_end);
  }

  FrameStorage storage() const {
    return {frames_.data(), age_.data(), rows_, pixels_, stack_};
  }
  // What the policy saw at a step, oldest frame first.
  const Frame& stack(int32_t step) const { return stacks_[step]; }
  int64_t steps() const { return length_ * rows_; }
  int64_t stack_size() const { return stack_ * pixels_; }

 private:
  void PlayRow(int64_t b, double episode_end) {
    std::bernoulli_distribution ends(episode_end);
    std::deque<Frame> newest;
    int64_t age = 0;
    // From well before the rollout, whose storage begins stack - 1 steps early.
    for (int64_t t = -20; t < length_; ++t) {
      Frame frame(pixels_);
      for (uint8_t& pixel : frame) pixel = static_cast<uint8_t>(rng_());
      if (newest.empty() || ends(rng_)) {
        newest.assign(stack_, frame);
        age = 0;
      } else {
        newest.pop_front();
        newest.push_back(frame);
        ++age;
      }
      const int64_t slot = t + stack_ - 1;
      if (slot >= 0) {
        std::copy(frame.begin(), frame.end(),
                  frames_.begin() + (slot * rows_ + b) * pixels_);
      }
      if (t < 0) continue;
      age_[t * rows_ + b] = static_cast<uint8_t>(std::min(age, stack_ - 1));
      for (const Frame& f : newest) {
        Frame& all = stacks_[t * rows_ + b];
        all.insert(all.end(), f.begin(), f.end());
      }
    }
  }

  const int64_t length_, rows_, pixels_, stack_;
  std::mt19937 rng_{7};
  Frame frames_;
  std::vector<uint8_t> age_;
  std::vector<Frame> stacks_;
};

// Each step twice, in random order.
std::vector<int32_t> ShuffledSteps(const Play& play) {
  std::vector<int32_t> steps;
  for (int32_t i = 0; i < 2 * play.steps(); ++i) {
    steps.push_back(i % static_cast<int32_t>(play.steps()));
  }
  std::shuffle(steps.begin(), steps.end(), std::mt19937(3));
  return steps;
}

void ExpectStacksAsPlayed(const Play& play) {
  const std::vector<int32_t> steps = ShuffledSteps(play);
  Frame out(steps.size() * play.stack_size());
  StackFrames(play.storage(), steps, out.data());
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto first = out.begin() + i * play.stack_size();
    ASSERT_EQ(Frame(first, first + play.stack_size()), play.stack(steps[i]))
        << "step " << steps[i];
  }
}

TEST(FrameOpsTest, StacksAreWhatAQueueOfFramesHolds) {
  ExpectStacksAsPlayed(Play(40, 3, 84 * 84, 4, 0.2));
  ExpectStacksAsPlayed(Play(40, 5, 7, 4, 0.5));
  ExpectStacksAsPlayed(Play(40, 2, 10, 1, 0.3));
  ExpectStacksAsPlayed(Play(40, 1, 10, 6, 0.1));
}

TEST(FrameOpsTest, LongEpisodesReachIntoFramesFromBeforeTheRollout) {
  ExpectStacksAsPlayed(Play(3, 4, 10, 4, 0));
}

TEST(FrameOpsTest, NoStepsNoFrames) {
  const Play play(3, 2, 10, 4, 0.2);
  uint8_t untouched = 42;
  StackFrames(play.storage(), {}, &untouched);
  EXPECT_EQ(untouched, 42);
}

using FloatFramesTest = EveryKernelTest;
FLOTILLA_FOR_EVERY_KERNEL(FloatFramesTest);

TEST_P(FloatFramesTest, AreTheBytesDividedBy255) {
  const Play play(20, 3, 83, 4, 0.2);
  const std::vector<int32_t> steps = ShuffledSteps(play);
  Frame bytes(steps.size() * play.stack_size());
  std::vector<float> floats(bytes.size());
  StackFrames(play.storage(), steps, bytes.data());
  StackFramesAsFloat(play.storage(), steps, floats.data(), kernels());
  for (size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_EQ(floats[i], static_cast<float>(bytes[i]) / 255.0f);
  }
}

}  // namespace
}  // namespace flotilla
