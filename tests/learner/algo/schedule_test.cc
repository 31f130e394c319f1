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
    for (double done = 0; done <= 1; done += 0.05) {
      EXPECT_EQ(ScheduleFactor(With(v1::CONSTANT, end), done), 1.0);
      EXPECT_NEAR(ScheduleFactor(With(v1::LINEAR, end), done),
                  1 - (1 - end) * done, 1e-15);
      EXPECT_NEAR(ScheduleFactor(With(v1::COSINE, end), done),
                  Cosine(end, done), 1e-15);
    }
  }
}

TEST(ScheduleTest, EndsAtItsEnd) {
  for (const v1::Schedule schedule : {v1::LINEAR, v1::COSINE}) {
    EXPECT_NEAR(ScheduleFactor(With(schedule, 0), 1), 0, 1e-15);
    EXPECT_NEAR(ScheduleFactor(With(schedule, 0.25), 1), 0.25, 1e-15);
  }
}

}  // namespace
}  // namespace flotilla
