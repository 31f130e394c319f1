#include "learner/training/recorder.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "learner/torch.h"
#include "tests/learner/training/fakes.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

// A run's rank 0, of which the checkpoint of step 1 is the best, at 10.
class RecorderTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(
        recorder_, Recorder::Open(FakeConfig(), folder_.path(), std::nullopt));
    recorder_->Save(Evaluated(1, 10), /*best=*/true);
    ASSERT_OK(recorder_->FinishSaving());
  }

  static Snapshot Evaluated(int64_t step, double mean_return,
                            float weight = 1) {
    Snapshot snapshot;
    snapshot.progress.update = snapshot.progress.global_step = step;
    snapshot.progress.best_return = mean_return;
    snapshot.weights = {{"weight", torch::full({1}, weight)}};
    return snapshot;
  }

  std::string Best() const {
    return std::filesystem::read_symlink(folder_.path() + "/checkpoints/best");
  }

  TempDir folder_;
  std::unique_ptr<Recorder> recorder_;
};

class BestTest : public RecorderTest,
                 public testing::WithParamInterface<bool> {};

// A better one that is being written, and will be or not; on the way comes what
// lies between it and the one that stands.
TEST_P(BestTest, IsDecidedByWhatCouldBeWritten) {
  const bool can_be = GetParam();
  std::promise<void> write;
  recorder_->Save(Evaluated(2, 100, can_be ? 1 : std::nanf("")),
                  /*best=*/true, write.get_future().share());
  EXPECT_EQ(recorder_->best_return(), 100);
  EXPECT_TRUE(recorder_->IsBest(101));
  EXPECT_FALSE(recorder_->IsBest(10));
  std::future<bool> between =
      std::async(std::launch::async, [this] { return recorder_->IsBest(90); });
  EXPECT_EQ(between.wait_for(std::chrono::milliseconds(100)),
            std::future_status::timeout);
  write.set_value();
  EXPECT_EQ(between.get(), !can_be);
  EXPECT_EQ(recorder_->FinishSaving().ok(), can_be);
  EXPECT_EQ(recorder_->best_return(), can_be ? 100 : 10);
  EXPECT_EQ(Best(), can_be ? "step_000000000002" : "step_000000000001");
}

INSTANTIATE_TEST_SUITE_P(CanBeWritten, BestTest, testing::Bool());

}  // namespace
}  // namespace flotilla
