#include "services/base/gpus.h"

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace flotilla {
namespace {

std::string Visible(const std::string& devices) {
  const std::vector<Gpu> gpus = {
      {"a", "GPU-aaaa-1", 1}, {"b", "GPU-bbbb-2", 1}, {"c", "GPU-cccc-3", 1}};
  return absl::StrJoin(
      VisibleGpus(gpus, devices), " ",
      [](std::string* out, const Gpu& gpu) { out->append(gpu.name); });
}

TEST(GpusTest, VisibleDevicesChooseAndOrder) {
  EXPECT_EQ(Visible("2,0"), "c a");
  EXPECT_EQ(Visible("GPU-bbbb"), "b");
}

TEST(GpusTest, TheFirstDeviceThatDoesNotExistEndsTheList) {
  EXPECT_EQ(Visible("1,-1,0"), "b");
  EXPECT_EQ(Visible("1,7,0"), "b");
  EXPECT_EQ(Visible(""), "");
  EXPECT_EQ(Visible("-1"), "");
}

TEST(GpusTest, ASurveyHasGpusOrAReason) {
  const GpuSurvey survey = SurveyGpus();
  EXPECT_EQ(survey.gpus.empty(), !survey.problem.empty());
}

}  // namespace
}  // namespace flotilla
