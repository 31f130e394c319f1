#include "tests/rehearsal/counters.h"

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "services/base/mutex.h"

namespace flotilla::rehearsal {
namespace {

struct Ledger {
  Mutex mutex;
  Counts counts ABSL_GUARDED_BY(mutex);
  absl::flat_hash_map<std::string, int64_t> launches ABSL_GUARDED_BY(mutex);
};

Ledger& TheLedger() {
  static auto* const ledger = new Ledger();
  return *ledger;
}

struct Line {
  int64_t count = 0;
  std::string text;
};

std::vector<Line> Lines(const Counts& counts) {
  const std::pair<const char*, CopyCount> copies[] = {
      {"copies, pinned to device", counts.pinned_to_device},
      {"copies, pageable to device", counts.pageable_to_device},
      {"copies, device to pinned", counts.device_to_pinned},
      {"copies, device to pageable", counts.device_to_pageable},
      {"copies within the device", counts.within_device}};
  const std::pair<const char*, int64_t> others[] = {
      {"waits, all", counts.HostWaits()},
      {"waits, blocking copies", counts.blocking_copies},
      {"waits, host reads (item)", counts.scalar_reads},
      {"waits, dynamic shapes", counts.dynamic_shapes},
      {"waits, events", counts.event_waits},
      {"waits, streams", counts.stream_waits},
      {"waits, whole device", counts.device_waits},
      {"overwritten pinned sources", counts.overwritten_sources},
      {"missing events", counts.missing_events},
      {"launches", counts.launches},
      {"views", counts.views}};
  std::vector<Line> lines;
  for (const auto& [name, count] : copies) {
    lines.push_back(
        {count.copies, absl::StrFormat("%-27s %9d  of %d bytes\n", name,
                                       count.copies, count.bytes)});
  }
  for (const auto& [name, count] : others) {
    lines.push_back({count, absl::StrFormat("%-27s %9d\n", name, count)});
  }
  return lines;
}

}  // namespace

int64_t Counts::HostWaits() const {
  return blocking_copies + scalar_reads + dynamic_shapes + event_waits +
         stream_waits + device_waits;
}

Counts ReadCounts() {
  Ledger& ledger = TheLedger();
  MutexLock lock(&ledger.mutex);
  return ledger.counts;
}

void ResetCounts() {
  Ledger& ledger = TheLedger();
  MutexLock lock(&ledger.mutex);
  ledger.counts = Counts();
  ledger.launches.clear();
}

std::string Describe(const Counts& counts) {
  std::string table;
  for (const Line& line : Lines(counts)) table += line.text;
  return table;
}

std::string Excess(const Counts& counts, const Counts& most) {
  const std::vector<Line> ours = Lines(counts), bounds = Lines(most);
  std::string excess;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (ours[i].count > bounds[i].count) excess += ours[i].text;
  }
  return excess;
}

std::map<std::string, int64_t> LaunchesByOperator() {
  Ledger& ledger = TheLedger();
  MutexLock lock(&ledger.mutex);
  return {ledger.launches.begin(), ledger.launches.end()};
}

void Count(int64_t Counts::*counter) {
  Ledger& ledger = TheLedger();
  MutexLock lock(&ledger.mutex);
  ++(ledger.counts.*counter);
}

void CountCopy(CopyCount Counts::*copies, int64_t bytes) {
  Ledger& ledger = TheLedger();
  MutexLock lock(&ledger.mutex);
  ++(ledger.counts.*copies).copies;
  (ledger.counts.*copies).bytes += bytes;
}

void CountLaunch(const std::string& name) {
  Ledger& ledger = TheLedger();
  MutexLock lock(&ledger.mutex);
  ++ledger.counts.launches;
  ++ledger.launches[name];
}

}  // namespace flotilla::rehearsal
