#ifndef FLOTILLA_LEARNER_DEVICE_STREAM_H_
#define FLOTILLA_LEARNER_DEVICE_STREAM_H_

#include <memory>

#include "learner/torch.h"

// Threads that ask a device for work beside each other. A device does what is asked
// of one stream in its order; what goes to two is ordered by marks alone:
//
//   the thread that learns         the thread that acts
//                                  OwnStream stream(device);
//   ... writes x ...
//   mark = StreamMark::Now(device)
//                                  mark.Await();
//                                  ... reads x ...
//
// On a CPU there are none, and nothing happens.

namespace flotilla {

// Until it goes, what the calling thread asks of `device` goes to a stream of its own,
// ahead of what others have asked and is not begun. Then it blocks until all of that
// is done, so that memory may be given back. Not thread-safe. Errors: throws c10::Error.
class OwnStream {
 public:
  explicit OwnStream(torch::Device device);
  ~OwnStream();

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;  // null: a CPU
};

// What was asked of the calling thread's stream of a device until Now. Copies are
// the same mark. Thread-safe. Errors: throw c10::Error.
class StreamMark {
 public:
  StreamMark() = default;  // nothing
  static StreamMark Now(torch::Device device);

  // What the calling thread asks of its stream from here on comes after that. The
  // host does not wait.
  void Await() const;

 private:
  struct Event;
  std::shared_ptr<const Event> event_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_DEVICE_STREAM_H_
