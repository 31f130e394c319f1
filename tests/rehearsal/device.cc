#include "tests/rehearsal/device.h"

#include "tests/rehearsal/allocators.h"
#include "tests/rehearsal/graph.h"
#include "tests/rehearsal/guard.h"
#include "tests/rehearsal/hooks.h"
#include "tests/rehearsal/memory.h"
#include "tests/rehearsal/operators.h"

namespace flotilla::rehearsal {

void Register() {
  static const bool once = [] {
    c10::register_privateuse1_backend("rehearsal");
    RegisterAllocators();
    RegisterGuard();
    RegisterHooks();
    RegisterOperators();
    RegisterRehearsalGraphs();
    return true;
  }();
  static_cast<void>(once);
}

torch::Device Device() { return torch::Device(torch::kPrivateUse1, 0); }

int64_t LiveBytes() { return Memory::Get().live_bytes(); }

}  // namespace flotilla::rehearsal
