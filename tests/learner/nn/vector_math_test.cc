#include "learner/nn/vector_math.h"

#include <dlfcn.h>

#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "learner/torch.h"

namespace flotilla {
namespace {

// MKL asks ours, and still has one to be asked instead of: without either, its
// products are half as fast on AMD's CPUs, and nothing else would say so.
TEST(VectorMathTest, TheProgramAnswersWhatMklAsksOfTheCpu) {
  SettleVectorMath();
  constexpr char kName[] = "mkl_serv_intel_cpu_true";
  Dl_info torch_library;
  ASSERT_NE(
      dladdr(reinterpret_cast<void*>(&at::get_num_threads), &torch_library), 0);
  void* const library = dlopen(torch_library.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr) << torch_library.dli_fname;
  void* const its_own = dlsym(library, kName);
  void* const asked = dlsym(RTLD_DEFAULT, kName);
  dlclose(library);
  ASSERT_NE(its_own, nullptr);
  EXPECT_NE(asked, its_own);
  __builtin_cpu_init();
  if (__builtin_cpu_is("intel") ||
      (__builtin_cpu_is("amd") && __builtin_cpu_supports("avx2"))) {
    EXPECT_EQ(reinterpret_cast<int (*)()>(asked)(), 1);
  }
}

// A row's product is the same bits however the other factor is laid out, and
// whatever rows there are beside it.
TEST(VectorMathTest, ProductsAreRoundedInOneWay) {
  SettleVectorMath();
  torch::manual_seed(3);
  for (const auto& [rows, inputs, outputs] :
       std::vector<std::tuple<int, int, int>>{
           {8, 3136, 512}, {128, 3136, 512}, {4, 512, 7}, {128, 64, 64}}) {
    const torch::Tensor a = torch::randn({rows, inputs});
    const torch::Tensor b = torch::randn({inputs, outputs});
    const torch::Tensor expected = torch::mm(a, b);
    EXPECT_TRUE(torch::equal(torch::mm(a, b.t().contiguous().t()), expected))
        << inputs << " to " << outputs << ", transposed";
    EXPECT_TRUE(torch::equal(torch::mm(a.narrow(0, 0, 1), b)[0], expected[0]))
        << inputs << " to " << outputs << ", one row";
  }
}

}  // namespace
}  // namespace flotilla
