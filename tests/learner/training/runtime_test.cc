#include "learner/training/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "google/protobuf/text_format.h"
#include "learner/torch.h"
#include "services/base/cores.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

int Threads(const std::string& text, const Spaces& spaces, int learners = 1) {
  v1::RunConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return TorchThreads(config, spaces, learners);
}

// What the kernel was told of the memory at `where`: "rd wr mr ... hg".
std::string AdviceFor(const void* where) {
  const uint64_t address = reinterpret_cast<uint64_t>(where);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uint64_t first = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &end) == 2) {
      inside = first <= address && address < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      return line;
    }
  }
  return "";
}

// First of all: who has allocated a tensor has made the choice.
TEST(KeepMemoryTest, LargeTensorsLieInHugePages) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) {
    GTEST_SKIP() << "this kernel has none";
  }
  KeepMemory();
  const torch::Tensor large = torch::empty({4 << 20});
  EXPECT_THAT(AdviceFor(large.const_data_ptr<float>() + (2 << 20)),
              testing::HasSubstr(" hg"));
}

TEST(TorchThreadsTest, SmallNetworksAreNotShared) {
  const int cores = CoresToFill();
  const Spaces numbers = VectorSpaces(4, 2);
  Spaces images = numbers;
  images.observation[0].kind = LeafKind::kImage;
  const std::string small = "model { hidden: [64, 64] recurrent_size: 512 } ";
  EXPECT_EQ(Threads(small, numbers), 1);
  EXPECT_EQ(Threads(small, images), cores);
  EXPECT_EQ(Threads(small, images, 2 * cores), 1);
  EXPECT_EQ(Threads("model { hidden: [64, 512] }", numbers), cores);
  EXPECT_EQ(Threads("model { leaf { path: \"a\" hidden: 512 } }", numbers),
            cores);
  EXPECT_EQ(Threads("model { recurrent: LSTM recurrent_size: 512 }", numbers),
            cores);
  EXPECT_EQ(Threads("model { torchscript: \"net.pt\" }", numbers), cores);
  EXPECT_EQ(Threads(small + "runtime { torch_threads: 3 }", numbers), 3);
}

// Measuring convolutions may choose another algorithm the next time.
TEST(ArithmeticTest, OnlyWhatNeedNotRepeatIsMeasured) {
  const at::Context& torch = at::globalContext();
  v1::RuntimeConfig config;
  for (const bool deterministic : {true, false, true}) {
    config.set_deterministic(deterministic);
    SetArithmetic(config);
    EXPECT_EQ(torch.benchmarkCuDNN(), !deterministic);
    EXPECT_EQ(torch.deterministicCuDNN(), deterministic);
  }
}

TEST(ArithmeticTest, MatricesAreTf32WhereThatIsAskedFor) {
  const at::Context& torch = at::globalContext();
  v1::RuntimeConfig config;
  for (const v1::Precision precision : {v1::TF32, v1::FP32, v1::BF16}) {
    config.set_precision(precision);
    SetArithmetic(config);
    EXPECT_EQ(torch.allowTF32CuBLAS(), precision == v1::TF32);
    EXPECT_EQ(torch.allowTF32CuDNN(), precision == v1::TF32);
  }
}

}  // namespace
}  // namespace flotilla
