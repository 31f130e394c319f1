#include "learner/algo/schedule.h"

#include <cmath>

#include "gtest/gtest.h"

namespace flotilla {
namespace {

v1::OptimizerConfig With(v1::Schedule schedule, double end) {
  v1::OptimizerConfig optimizer;
  optimizer.set_schedule(schedule);
  optimizer.set_schedule_end(end);
  return optimizer;
}

// torch.optim.lr_scheduler.CosineAnnealingLR's closed form, with eta_max 1.
double Cosine(double end, double done) {
  return end + (1 - end) * (1 + std::cos(done * 3.14159265358979323846)) / 2;
}

TEST(ScheduleTest, FollowsItsFormula) {
  for (const double end : {0.0, 0.1}) {
    for (int64_t step = 0; step <= 1000; step += 50) {
      const double done = step / 1000.0;
      EXPECT_EQ(ScheduleFactor(With(v1::CONSTANT, end), step, 1000), 1.0);
      EXPECT_NEAR(ScheduleFactor(With(v1::LINEAR, end), step, 1000),
                  1 - (1 - end) * done, 1e-15);
      EXPECT_NEAR(ScheduleFactor(With(v1::COSINE, end), step, 1000),
                  Cosine(end, done), 1e-15);
    }
  }
}

TEST(ScheduleTest, StaysAtItsEndBeyondTheRun) {
  for (const v1::Schedule schedule : {v1::LINEAR, v1::COSINE}) {
    EXPECT_NEAR(ScheduleFactor(With(schedule, 0), 1200, 1000), 0, 1e-15);
    EXPECT_NEAR(ScheduleFactor(With(schedule, 0.25), 1200, 1000), 0.25, 1e-15);
  }
}

}  // namespace
}  // namespace flotilla
