#ifndef FLOTILLA_TESTS_REHEARSAL_NO_HOST_WAIT_H_
#define FLOTILLA_TESTS_REHEARSAL_NO_HOST_WAIT_H_

#include <string>

#include "learner/torch.h"
#include "tests/rehearsal/counters.h"

namespace flotilla::rehearsal {

// While one lives on a thread, whatever makes the host wait for the device
// throws c10::Error, which names it: item(), printing, equal, nonzero and masks
// as indices, copies to the host, copies of pageable memory or without
// non_blocking, events, streams and the device itself. A non-blocking copy
// between pinned memory and the device passes.
//
// It reaches the threads that run a backward pass which began in the scope.
// Not thread-safe: it ends on the thread where it began, and scopes nest.
class NoHostWait {
 public:
  NoHostWait();
  NoHostWait(const NoHostWait&) = delete;
  NoHostWait& operator=(const NoHostWait&) = delete;

 private:
  const c10::DebugInfoGuard guard_;
};

// For the device's own parts: the host is about to wait, because of `what`.
// Counts it. Errors: throws c10::Error within a NoHostWait.
void HostWait(int64_t Counts::*counter, const std::string& what);

}  // namespace flotilla::rehearsal

#endif  // FLOTILLA_TESTS_REHEARSAL_NO_HOST_WAIT_H_
