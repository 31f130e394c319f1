#ifndef FLOTILLA_LEARNER_COLLECTIVE_SHM_SEGMENT_H_
#define FLOTILLA_LEARNER_COLLECTIVE_SHM_SEGMENT_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace flotilla {

// Memory that processes of one user on one host share. It has no name in any
// file system: it is gone with the last process that maps it, however that one
// ends, and a container's limit on /dev/shm does not apply.
//
// Not thread-safe, but the memory is everybody's.
class ShmSegment {
 public:
  // Makes one of `bytes`, all zero.
  static absl::StatusOr<ShmSegment> Create(size_t bytes);

  // Maps the one whose locator() this is.
  // Errors: kUnavailable if it cannot be reached from here (another user,
  // another PID namespace) or is not the one meant.
  static absl::StatusOr<ShmSegment> Open(const std::string& locator);

  ShmSegment() = default;  // no memory
  ~ShmSegment();
  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  // Text that Open takes in another process while this object lives.
  const std::string& locator() const { return locator_; }

 private:
  int fd_ = -1;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string locator_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_COLLECTIVE_SHM_SEGMENT_H_
