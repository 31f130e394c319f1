#include "learner/kernels/isa/kernel_table.h"

#include "gtest/gtest.h"
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

FLOTILLA_FOR_EVERY_KERNEL(KernelTableTest);

}  // namespace
}  // namespace flotilla
