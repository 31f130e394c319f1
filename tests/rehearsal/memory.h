#ifndef FLOTILLA_TESTS_REHEARSAL_MEMORY_H_
#define FLOTILLA_TESTS_REHEARSAL_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
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

  // Where the block begins that `device`, an address of one, is in; null if it is
  // in none.
  void* BlockOf(const void* device) const;

  int64_t live_bytes() const;

  // For graphs (graph.h), one at a time. A block by its place and by when it was
  // allocated.
  struct BlockId {
    size_t place = 0;
    int64_t number = 0;
  };
  // Blocks that are allocated for what is captured from here to EndHolding, which
  // names them, are not given away again before LetGo.
  void BeginHolding();
  std::vector<BlockId> EndHolding();
  void LetGo(const std::vector<BlockId>& blocks);
  // The block that begins at `device`, if it was there at BeginHolding.
  std::optional<BlockId> OlderThanHolding(const void* device) const;
  bool IsLive(const BlockId& block) const;

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
  struct Block {
    size_t size = 0;
    int64_t number = 0;
    bool held = false;
    bool freed = false;  // by whom it was allocated for, while it was held
  };
  void FreeLocked(size_t place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Those in use, by place.
  absl::flat_hash_map<size_t, Block> block_ ABSL_GUARDED_BY(mutex_);
  int64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t first_held_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: none is to be held
};

}  // namespace flotilla::rehearsal

#endif  // FLOTILLA_TESTS_REHEARSAL_MEMORY_H_
