#ifndef FLOTILLA_TESTS_REHEARSAL_COUNTERS_H_
#define FLOTILLA_TESTS_REHEARSAL_COUNTERS_H_

#include <cstdint>
#include <map>
#include <string>

namespace flotilla::rehearsal {

struct CopyCount {
  int64_t copies = 0;
  int64_t bytes = 0;
};

// What the process asked of the device.
struct Counts {
  int64_t launches =
      0;              // operators that compute; each is a GPU's kernel or more
  int64_t views = 0;  // operators that only describe memory anew: free there

  // Copies of at least one element.
  CopyCount pinned_to_device;
  CopyCount pageable_to_device;
  CopyCount device_to_pinned;
  CopyCount device_to_pageable;
  CopyCount within_device;  // a launch as well

  // Where the host stood still until the device was done.
  int64_t blocking_copies = 0;  // of pageable memory, or not non_blocking
  int64_t scalar_reads = 0;     // item()
  int64_t dynamic_shapes = 0;   // nonzero, a mask as an index: the host must
                                // know how large the result is
  int64_t event_waits = 0;
  int64_t stream_waits = 0;
  int64_t device_waits = 0;

  // In strict mode: pinned sources that changed before their copy was known to
  // be over.
  int64_t overwritten_sources = 0;

  // In strict mode: what two streams do with the same memory in no order.
  int64_t missing_events = 0;

  // All of the above for which the host stood still.
  int64_t HostWaits() const;
};

// Since the last ResetCounts(). All thread-safe.
Counts ReadCounts();
void ResetCounts();

// A table of all of them, one line each.
std::string Describe(const Counts& counts);

// The lines of `counts` that are above those of `most`; "" if there is none.
std::string Excess(const Counts& counts, const Counts& most);

// Launches by operator, as in {"aten::addmm", 3}.
std::map<std::string, int64_t> LaunchesByOperator();

// For the device's own parts: count one.
void Count(int64_t Counts::*counter);
void CountCopy(CopyCount Counts::*copies, int64_t bytes);
void CountLaunch(const std::string& name);

}  // namespace flotilla::rehearsal

#endif  // FLOTILLA_TESTS_REHEARSAL_COUNTERS_H_
