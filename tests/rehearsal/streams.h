#ifndef FLOTILLA_TESTS_REHEARSAL_STREAMS_H_
#define FLOTILLA_TESTS_REHEARSAL_STREAMS_H_

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "learner/torch.h"
#include "services/base/mutex.h"
#include "tests/rehearsal/stream_order.h"

namespace flotilla::rehearsal {

// A place in a stream's order, where an event was recorded.
struct Event {
  int64_t stream = 0;
  int64_t position = 0;
  StreamClock clock;
  std::chrono::steady_clock::time_point when;
};

// Which copies of which stream the host cannot know to be over. Streams are
// numbers; 0 is the default one.
//
// Thread-safe. One a process, never destroyed.
class Streams {
 public:
  static Streams& Get();

  // Of the calling thread.
  static int64_t Current();
  static int64_t SetCurrent(int64_t stream);  // the one before

  int64_t Make();

  void Record(int64_t stream, Event* event);
  // What `stream` does from now on comes after `event`.
  void Block(int64_t stream, const Event& event);

  // A copy of `values` to `host`, which holds 0xFF until a wait.
  void CopyToHostLate(const at::Tensor& host, const at::Tensor& values);
  // A copy of `host`, which must not change until a wait.
  void CopyFromHostLate(const at::Tensor& host);

  // What the host knows to be over once it has waited.
  void Finish(const Event& event);
  void Finish(int64_t stream);
  void FinishAll();

 private:
  struct LateCopy {
    int64_t position;
    at::Tensor host;
    at::Tensor values;
    bool to_host;
  };
  struct Wait {
    int64_t position;
    Event event;
  };
  struct Stream {
    int64_t position = 0;  // of what was issued last
    std::vector<LateCopy> late;
    std::vector<Wait> waits;
  };
  static constexpr int64_t kEverything = std::numeric_limits<int64_t>::max();

  Streams() = default;
  void AddLate(const at::Tensor& host, const at::Tensor& values, bool to_host);
  void FinishLocked(int64_t stream, int64_t position)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void End(const LateCopy& copy);

  Mutex mutex_;
  int64_t last_made_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, Stream> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace flotilla::rehearsal

#endif  // FLOTILLA_TESTS_REHEARSAL_STREAMS_H_
