#include "tests/rehearsal/no_host_wait.h"

#include <memory>

#include "tests/rehearsal/graph.h"

namespace flotilla::rehearsal {
namespace {

// Torch hands this on to the threads of a backward pass; a thread_local of ours
// would stay behind.
constexpr auto kScope = c10::DebugInfoKind::TEST_INFO;

struct Scope : c10::DebugInfoBase {};

}  // namespace

NoHostWait::NoHostWait() : guard_(kScope, std::make_shared<Scope>()) {}

void HostWait(int64_t Counts::*counter, const std::string& what) {
  Count(counter);
  TORCH_CHECK(!IsCapturing(), "rehearsal: ", what,
              " within the capture of a graph makes the host wait");
  TORCH_CHECK(
      c10::ThreadLocalDebugInfo::get(kScope) == nullptr,
      "within NoHostWait, the host waits for the rehearsal device: ", what);
}

}  // namespace flotilla::rehearsal
