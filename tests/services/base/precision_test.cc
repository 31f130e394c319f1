#include "services/base/precision.h"

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace flotilla {
namespace {

// Whether /proc/cpuinfo has `word`.
bool CpuHas(const std::string& word) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string each; file >> each;) {
    if (each == word) return true;
  }
  return false;
}

v1::Precision Auto(const Arithmetic& arithmetic) {
  return ChoosePrecision(v1::PRECISION_AUTO, arithmetic).value();
}

Arithmetic OfGpu(int compute_capability) {
  Gpu gpu;
  gpu.compute_capability = compute_capability;
  return ArithmeticOf(gpu);
}

TEST(PrecisionTest, AutoIsBfloat16WhereThatIsFaster) {
  EXPECT_EQ(Auto({}), v1::FP32);
  EXPECT_EQ(Auto({.amx_bf16 = true}), v1::BF16);
  EXPECT_EQ(Auto({.full_avx512_bf16 = true}), v1::BF16);
  // What the CPU could do does not matter beside a GPU.
  EXPECT_EQ(Auto({.gpu = true, .amx_bf16 = true}), v1::FP32);
  EXPECT_EQ(Auto(OfGpu(75)), v1::FP32);
  EXPECT_EQ(Auto(OfGpu(80)), v1::BF16);
  EXPECT_EQ(Auto(OfGpu(90)), v1::BF16);
}

TEST(PrecisionTest, WhatIsAskedForStays) {
  for (const v1::Precision wanted : {v1::FP32, v1::BF16}) {
    EXPECT_EQ(ChoosePrecision(wanted, {}).value(), wanted);
    EXPECT_EQ(ChoosePrecision(wanted, {.amx_bf16 = true}).value(), wanted);
  }
  EXPECT_EQ(ChoosePrecision(v1::TF32, {.gpu = true}).value(), v1::TF32);
}

TEST(PrecisionTest, Tf32IsOfAGpu) {
  const auto refused = ChoosePrecision(v1::TF32, ArithmeticOfCpu());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              testing::HasSubstr("runtime.precision is TF32"));
}

// The kernel's word for the same instructions.
TEST(PrecisionTest, TheCpuSaysWhatTheKernelSays) {
  const Arithmetic cpu = ArithmeticOfCpu();
  EXPECT_FALSE(cpu.gpu);
  EXPECT_EQ(cpu.amx_bf16, CpuHas("amx_bf16") && CpuHas("avx512_bf16"));
  EXPECT_EQ(cpu.full_avx512_bf16,
            CpuHas("avx512_bf16") && CpuHas("AuthenticAMD"));
}

}  // namespace
}  // namespace flotilla
