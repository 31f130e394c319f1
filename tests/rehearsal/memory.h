#ifndef FLOTILLA_TESTS_REHEARSAL_MEMORY_H_
#define FLOTILLA_TESTS_REHEARSAL_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/base/mutex.h"

namespace flotilla::rehearsal {

// The device's memory: two ranges of addresses, equally long.
//
//   device  [ . . . . A A A . . ]   what tensors carry; never mapped, and who
//                                   touches it dies and is told why
//   shadow  [ . . . . a a a . . ]   the bytes, where kernels work
//
// A block has the same place in both. Only pages that were written take memory.
//
// Thread-safe. One a process, never destroyed.
class Memory {
 public:
  static Memory& Get();

  // The shadow address of a block of at least `bytes`; null for 0. In strict
  // mode the block is filled with 0xFF, which is NaN, -1 and true.
  // Errors: throws c10::OutOfMemoryError when the range is used up.
  void* Allocate(size_t bytes);

  // Gives back what Allocate returned.
  void Free(void* shadow);

  bool HasDevice(const void* address) const;
  bool HasShadow(const void* address) const;

  // Between the two ranges; null stays null.
  void* ToShadow(const void* device) const;
  void* ToDevice(const void* shadow) const;

  int64_t live_bytes() const;

 private:
  Memory();

  // Constant after construction.
  char* device_;
  char* shadow_;

  mutable Mutex mutex_;
  size_t top_ ABSL_GUARDED_BY(mutex_) = 0;  // never used from here on
  int64_t live_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Places of free blocks, by size.
  absl::flat_hash_map<size_t, std::vector<size_t>> spare_
      ABSL_GUARDED_BY(mutex_);
  // Sizes of blocks in use, by place.
  absl::flat_hash_map<size_t, size_t> size_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace flotilla::rehearsal

#endif  // FLOTILLA_TESTS_REHEARSAL_MEMORY_H_
