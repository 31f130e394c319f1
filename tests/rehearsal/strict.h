#ifndef FLOTILLA_TESTS_REHEARSAL_STRICT_H_
#define FLOTILLA_TESTS_REHEARSAL_STRICT_H_

namespace flotilla::rehearsal {

// While one lives, the device is as late and as careless as a GPU may be:
//
//   new memory               holds 0xFF: NaN where a kernel should have written
//   non-blocking, to a       0xFF in the host tensor until a wait that covers
//   pinned host tensor       the copy; only then its values
//   non-blocking, from a     the source must not change until a wait covers
//   pinned host tensor       the copy; if it did, Counts::overwritten_sources
//
// A wait covers a copy if it is for the copy's stream, for an event recorded on
// it after the copy, or for a stream that waits for such an event. An event or
// stream that is asked whether it is done says yes, which covers as a wait does.
//
// For the whole process, and nestable. Thread-safe.
class Strict {
 public:
  Strict();
  ~Strict();
  Strict(const Strict&) = delete;
  Strict& operator=(const Strict&) = delete;
};

bool IsStrict();

}  // namespace flotilla::rehearsal

#endif  // FLOTILLA_TESTS_REHEARSAL_STRICT_H_
