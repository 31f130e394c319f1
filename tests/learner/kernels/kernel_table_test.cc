#include "learner/kernels/isa/kernel_table.h"

#include "gtest/gtest.h"
#include "services/base/precision.h"
#include "tests/learner/kernels/every_kernel_test.h"

namespace flotilla {
namespace {

class KernelTableTest : public EveryKernelTest {};

TEST_P(KernelTableTest, IsFoundByItsName) {
  EXPECT_EQ(&KernelsNamed(kernels().name), &kernels());
}

TEST(KernelsNamedTest, AreTheFastestWhereNoneIsNamedThatRunsHere) {
  const KernelTable* const fastest = RunnableKernels().front();
  for (const char* name : {static_cast<const char*>(nullptr), "", "x87"}) {
    EXPECT_EQ(&KernelsNamed(name), fastest);
  }
}

// Or PRECISION_AUTO would choose what nothing multiplies.
TEST(RunnableKernelsTest, HaveTheInstructionsThatPrecisionsAreChosenBy) {
  const KernelTable& fastest = *RunnableKernels().front();
  const Arithmetic cpu = ArithmeticOfCpu();
  EXPECT_TRUE(fastest.has_tiles || !cpu.amx_bf16);
  EXPECT_TRUE(fastest.multiplies_bfloat16 || !cpu.full_avx512_bf16);
}

FLOTILLA_FOR_EVERY_KERNEL(KernelTableTest);

}  // namespace
}  // namespace flotilla
