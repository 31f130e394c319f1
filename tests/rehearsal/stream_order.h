#ifndef FLOTILLA_TESTS_REHEARSAL_STREAM_ORDER_H_
#define FLOTILLA_TESTS_REHEARSAL_STREAM_ORDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "learner/torch.h"
#include "services/base/mutex.h"

namespace flotilla::rehearsal {

// For each stream, up to where it has passed what it may rely on.
using StreamClock = std::map<int64_t, int64_t>;

// Finds what a missing event would break. Streams run late, each in its order, and
// only events and waits of the host order one after another. So whoever touches
// memory that another stream wrote, or writes what another reads, has to come after
// that by a chain of those (Lamport 1978); if not, Counts::missing_events says so,
// and a warning names the operator and both streams.
//
//   stream 1   write x   record e                     ok
//   stream 2                        wait e   read x
//
// In strict mode only. Thread-safe. One a process, never destroyed.
class StreamOrder {
 public:
  static StreamOrder& Get();

  // Stream `stream` begins its next operator.
  void Launch(int64_t stream);
  // Bytes [begin, end) of the block of memory that begins at `block`.
  struct Range {
    const void* block = nullptr;  // null: nothing
    int64_t begin = 0, end = 0;

    bool Overlaps(const Range& other) const {
      return begin < other.end && other.begin < end;
    }
    bool Covers(const Range& other) const {
      return begin <= other.begin && other.end <= end;
    }
  };
  // Which reads or writes this.
  void Read(int64_t stream, const Range& range, const std::string& op);
  void Write(int64_t stream, const Range& range, const std::string& op);
  // The block is nobody's any more.
  void Forget(const void* block);

  // Where `stream` is now: what an event carries.
  StreamClock Record(int64_t stream);
  // What `stream` does from now on comes after that.
  void Block(int64_t stream, const StreamClock& event);
  // What any stream is asked to do from now on does.
  void HostWaited(const StreamClock& event);
  void HostWaitedForAll();

 private:
  struct Access {
    int64_t stream = 0;
    int64_t position = 0;
    Range range;
    std::string op;
  };
  // Those that nothing later has covered.
  struct MemoryBlock {
    std::vector<Access> writes, reads;
  };

  StreamOrder() = default;
  // `now` against what is in its way among `before`.
  void Check(const Access& now, const std::vector<Access>& before,
             const char* does, const char* did)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  std::map<int64_t, StreamClock> clock_ ABSL_GUARDED_BY(mutex_);
  StreamClock host_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<const void*, MemoryBlock> blocks_ ABSL_GUARDED_BY(mutex_);
};

// What one operator of a graph reads and writes.
struct Touched {
  std::string op;
  std::vector<StreamOrder::Range> reads, writes;
};
// The calling thread's stream does that.
void LaunchOn(const Touched& touched);

// The calling thread's stream launches `op`, which reads and writes these tensors'
// memory; tensors that are not the device's are none of it.
void LaunchOn(const std::string& op, at::TensorList reads,
              at::TensorList writes);

}  // namespace flotilla::rehearsal

#endif  // FLOTILLA_TESTS_REHEARSAL_STREAM_ORDER_H_
