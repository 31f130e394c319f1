// With FLOTILLA_KERNELS_ON=gpu in the environment, the tests that this is linked into
// hold the kernels that a GPU runs, not those that the host compiled, beside Torch and
// the formulas: each operator called with tensors of the host is run by the GPU on
// copies of them, and what it wrote and returns is copied back.

#include "tests/learner/cuda/on_gpu.h"

#include <torch/library.h>

#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "learner/torch.h"

namespace flotilla {
namespace {

int launched = 0;

void RunOnGpu(const c10::OperatorHandle& op, c10::Stack* stack) {
  ++launched;
  const auto& arguments = op.schema().arguments();
  std::vector<std::pair<at::Tensor, at::Tensor>> written;  // of the host, there
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[stack->size() - arguments.size() + i];
    if (!value.isTensor()) continue;
    const at::Tensor host = value.toTensor();
    value = host.to(at::kCUDA);
    const c10::AliasInfo* alias = arguments[i].alias_info();
    if (alias != nullptr && alias->isWrite()) {
      written.emplace_back(host, value.toTensor());
    }
  }
  op.callBoxed(stack);
  for (auto& [host, there] : written) host.copy_(there);
  for (size_t i = 0; i < op.schema().returns().size(); ++i) {
    c10::IValue& value = (*stack)[stack->size() - 1 - i];
    value = value.toTensor().to(at::kCPU);
  }
}

class OnGpu : public testing::Environment {
 public:
  void SetUp() override {
    ASSERT_TRUE(at::hasCUDA()) << "no GPU, or not built for one";
    library_.emplace(torch::Library::IMPL, "flotilla", c10::DispatchKey::CPU,
                     __FILE__, __LINE__);
    for (const c10::OperatorName& op :
         c10::Dispatcher::singleton().getAllOpNames()) {
      if (op.getNamespace() != "flotilla") continue;
      ASSERT_TRUE(c10::Dispatcher::singleton()
                      .findSchemaOrThrow(op.name.c_str(), "")
                      .hasKernelForDispatchKey(c10::DispatchKey::CUDA))
          << op.name;
      library_->impl(op.name.c_str(),
                     torch::CppFunction::makeFromBoxedFunction<&RunOnGpu>());
    }
  }
  void TearDown() override { EXPECT_GT(launched, 0) << "nothing ran there"; }

 private:
  std::optional<torch::Library> library_;
};

const bool on_gpu = [] {
  if (!KernelsOnGpu()) return false;
  testing::AddGlobalTestEnvironment(new OnGpu);
  return true;
}();

}  // namespace
}  // namespace flotilla
