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

// A driver with two GPUs, of which the second tells no percentage, as MIG does.
class FakeDriver : public GpuDriver {
 public:
  std::string Problem() override { return problem; }
  std::string Version() override { return "570.1"; }
  std::vector<Gpu> Gpus() override { return gpus; }
  GpuUse Use(const std::string& uuid) override {
    if (uuid == "GPU-aaaa-1") return {.percent = 87, .memory_bytes = 5 << 20};
    if (uuid == "GPU-bbbb-2") return {.memory_bytes = 1 << 20};
    return {};
  }

  std::string problem;
  std::vector<Gpu> gpus = {{"a", "GPU-aaaa-1", 1}, {"b", "GPU-bbbb-2", 1}};
};

TEST(GpusTest, ASurveySaysWhatAProgramWouldSee) {
  struct Case {
    std::string problem;
    size_t gpus;
    std::optional<std::string> visible;
    std::string first;   // UUID of the first GPU
    std::string expect;  // in the reason why there is none
  };
  const Case cases[] = {
      {"", 2, std::nullopt, "GPU-aaaa-1", ""},
      {"", 2, "1", "GPU-bbbb-2", ""},
      {"", 2, "GPU-b,GPU-a", "GPU-bbbb-2", ""},
      {"", 2, "MIG-7", "MIG-7", ""},
      {"", 2, "0,MIG-8,MIG-7", "MIG-8", ""},
      {"", 2, "", "", "CUDA_VISIBLE_DEVICES=\"\" hides all GPUs"},
      {"", 2, "5", "", "CUDA_VISIBLE_DEVICES=\"5\" hides all GPUs"},
      {"", 0, std::nullopt, "", "knows no GPU"},
      {"does not answer", 2, std::nullopt, "", "does not answer"},
  };
  for (const Case& c : cases) {
    FakeDriver driver;
    driver.problem = c.problem;
    driver.gpus.resize(c.gpus);
    const GpuSurvey survey = SurveyGpus(&driver, c.visible);
    EXPECT_EQ(survey.gpus.empty() ? "" : survey.gpus[0].uuid, c.first);
    EXPECT_NE(survey.problem.find(c.expect), std::string::npos)
        << survey.problem;
    EXPECT_EQ(survey.problem.empty(), !survey.gpus.empty());
  }
}

TEST(GpusTest, ABuildWithoutCudaUsesNoneAndSaysSo) {
  FakeDriver driver;
  const GpuSurvey survey = SurveyGpus(&driver, std::nullopt);
  EXPECT_EQ(Usable(survey, /*built_for_gpus=*/true).gpus.size(), 2u);
  const GpuSurvey without = Usable(survey, /*built_for_gpus=*/false);
  EXPECT_TRUE(without.gpus.empty());
  EXPECT_EQ(without.problem,
            "this Flotilla was built without CUDA, so that 2 GPUs of this host "
            "are not used");
  EXPECT_NE(without.remedy.find("FLOTILLA_CUDA=1 make build"),
            std::string::npos);
  // Where there is none anyway, that is why.
  driver.problem = "does not answer";
  EXPECT_EQ(Usable(SurveyGpus(&driver, std::nullopt), false).problem,
            "does not answer");
}

TEST(GpusTest, AGpuIsMeasuredByWhatThisProgramSees) {
  struct Case {
    std::optional<std::string> visible;
    int index;
    std::optional<double> percent;
    std::optional<uint64_t> memory_bytes;
  };
  const Case cases[] = {
      {std::nullopt, 0, 87, 5 << 20},
      {std::nullopt, 1, std::nullopt, 1 << 20},
      {std::nullopt, 2, std::nullopt, std::nullopt},
      {std::nullopt, -1, std::nullopt, std::nullopt},
      {"1,0", 1, 87, 5 << 20},
      {"GPU-bbbb", 0, std::nullopt, 1 << 20},
      {"", 0, std::nullopt, std::nullopt},
      {"MIG-9", 0, std::nullopt, std::nullopt},
  };
  for (const Case& c : cases) {
    FakeDriver driver;
    const GpuUse use =
        MeasureGpu(&driver, SurveyGpus(&driver, c.visible).gpus, c.index);
    EXPECT_EQ(use.percent, c.percent);
    EXPECT_EQ(use.memory_bytes, c.memory_bytes);
  }
}

TEST(GpusTest, WithoutADriverNothingIsMeasured) {
  if (!SurveyGpus().gpus.empty()) GTEST_SKIP() << "this host has a GPU";
  EXPECT_FALSE(MeasureGpu(0).percent.has_value());
  EXPECT_FALSE(MeasureGpu(0).memory_bytes.has_value());
}

TEST(GpusTest, ASurveyHasGpusOrAReason) {
  const GpuSurvey survey = SurveyGpus();
  EXPECT_EQ(survey.gpus.empty(), !survey.problem.empty());
}

}  // namespace
}  // namespace flotilla
