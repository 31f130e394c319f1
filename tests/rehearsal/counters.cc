#include "tests/rehearsal/counters.h"

#include "absl/container/flat_hash_map.h"
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
