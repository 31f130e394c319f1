#ifndef FLOTILLA_TESTS_LEARNER_KERNELS_EVERY_KERNEL_TEST_H_
#define FLOTILLA_TESTS_LEARNER_KERNELS_EVERY_KERNEL_TEST_H_

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "learner/kernels/isa/kernel_table.h"

namespace flotilla {

// A test that runs once for every instruction set of this machine.
class EveryKernelTest : public testing::TestWithParam<const KernelTable*> {
 protected:
  const KernelTable& kernels() const { return *GetParam(); }
};

// Normal numbers of this scale.
inline std::vector<float> Draw(int64_t size, float scale, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> drawn(size);
  for (float& x : drawn) x = normal(rng);
  return drawn;
}

inline std::string NameOfKernels(
    const testing::TestParamInfo<const KernelTable*>& info) {
  std::string name = info.param->name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

#define FLOTILLA_FOR_EVERY_KERNEL(TestClass)                     \
  INSTANTIATE_TEST_SUITE_P(InstructionSet, TestClass,            \
                           testing::ValuesIn(RunnableKernels()), \
                           NameOfKernels)

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LEARNER_KERNELS_EVERY_KERNEL_TEST_H_
