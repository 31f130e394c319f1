#include "tests/rehearsal/generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include "tests/rehearsal/device.h"

namespace flotilla::rehearsal {
namespace {

class Generator final : public c10::GeneratorImpl {
 public:
  Generator()
      : c10::GeneratorImpl(
            Device(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

  const at::Generator& cpu() const { return cpu_; }

  void set_current_seed(uint64_t seed) override { cpu_.set_current_seed(seed); }
  uint64_t current_seed() const override { return cpu_.current_seed(); }
  uint64_t seed() override { return cpu_.seed(); }
  void set_offset(uint64_t) override {
    TORCH_CHECK(false, "a rehearsal generator has no offset");
  }
  uint64_t get_offset() const override { return 0; }
  void set_state(const c10::TensorImpl& state) override {
    cpu_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return cpu_.unsafeGetGeneratorImpl()->get_state();
  }
  Generator* clone_impl() const override {
    auto* const copy = new Generator();
    copy->cpu_ = cpu_.clone();
    return copy;
  }

 private:
  at::Generator cpu_ = at::detail::createCPUGenerator();
};

}  // namespace

at::Generator MakeGenerator() { return at::make_generator<Generator>(); }

const at::Generator& DefaultGenerator() {
  static const auto* const generator = new at::Generator(MakeGenerator());
  return *generator;
}

at::Generator CpuGenerator(const at::Generator& generator) {
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->cpu();
}

}  // namespace flotilla::rehearsal
