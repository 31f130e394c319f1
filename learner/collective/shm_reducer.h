#ifndef FLOTILLA_LEARNER_COLLECTIVE_SHM_REDUCER_H_
#define FLOTILLA_LEARNER_COLLECTIVE_SHM_REDUCER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "learner/collective/first_error.h"
#include "learner/collective/peer_process.h"

namespace flotilla {

enum class Element : uint32_t {
  kFloat32 = 1,
  kFloat64,
  kInt64,
  kByte,
  kBFloat16,  // summed in float32, rounded once
};

// Floats of a chunk.
inline constexpr size_t kShmPart = 1 << 15;

// Sums and copies arrays between the ranks of one host, through memory that
// they share: what ShmCollective is made of, without Torch and without a
// rendezvous.
//
//   segment  | arrived, left; of each rank | slots of rank 0 | of rank 1 | ...
//
// A rank copies its array to its slot, a chunk at a time, says so in `arrived`,
// and waits until all have. Small arrays: everyone then adds all slots. Large
// ones: rank r adds part r of all slots, and after a second wait everyone
// copies the parts together. Either way an element is added once, in the order
// of the ranks, so the sum is the same bits everywhere. Slots take turns: a rank
// writes chunk c + 1 before it waits for others at chunk c. It has seen all arrive
// at chunk c - 1 by then, and they did so after they had read chunk c - 2.
//
// A wait spins, then yields, then sleeps on a futex, and notices within 20 ms
// that a peer's process ended, that a peer left, or that Abort was called.
//
// After an error the object is dead. Not thread-safe, except Abort.
class ShmReducer {
 public:
  // What a segment for `world_size` ranks needs.
  static size_t SegmentBytes(int world_size);

  // `segment` is SegmentBytes(world_size) of memory, zero before the first rank
  // used it, borrowed; it must outlive this. `peer` has one process a rank,
  // this one's included. A call fails after `timeout`.
  ShmReducer(std::byte* segment, int rank, int world_size,
             std::vector<PeerProcess> peer, absl::Duration timeout);

  // Tells the peers that this rank has left.
  ~ShmReducer();

  ShmReducer(const ShmReducer&) = delete;
  ShmReducer& operator=(const ShmReducer&) = delete;

  // Called with a first element and how many: they are summed, and in a near cache.
  using Summed = std::function<void(size_t first, size_t count)>;

  // Replaces data[0, count) on every rank by the sum over ranks. `summed`, if there is
  // one, is called for chunk after chunk, of floats each of kShmPart but for the last.
  // Errors: kUnavailable naming the peer that is lost; kDeadlineExceeded naming
  // those that did not come; what Abort was given; kInternal if a peer is in
  // another call or has another count.
  absl::Status AllReduceSum(void* data, size_t count, Element element,
                            const Summed& summed = nullptr);

  // Copies data[0, bytes) from rank `root` to all others. Errors as above.
  absl::Status Broadcast(void* data, size_t bytes, int root);

  // Makes pending and later calls return `reason`, an error, and peers that
  // wait for this rank return kUnavailable. From any thread.
  void Abort(absl::Status reason);

  // The same without telling peers, until this is destroyed: the generation has ended
  // for all, and each is told so. From any thread.
  void End(absl::Status reason);

 private:
  using Clock = std::chrono::steady_clock;

  // What a rank is doing, for its peers to compare with what they do.
  struct Call {
    uint32_t kind;
    Element element;
    uint64_t count;
    int64_t root;
    bool operator==(const Call&) const = default;
  };

  // One rank's part of the segment. `arrived` is a futex.
  struct alignas(64) Seat {
    std::atomic<uint32_t> arrived;  // its count of steps, modulo 2^32
    std::atomic<uint32_t> waiters;  // how many sleep on `arrived`
    std::atomic<uint32_t> left;     // 1: it will never arrive again
    alignas(64) Call call[2];       // by parity of the chunk
  };

  Seat& seat(int rank) const;
  std::byte* slot(int rank, uint32_t chunk) const;
  std::byte* slot(int rank) const { return slot(rank, chunk_); }
  absl::Status Begin(const Call& call);
  // Those who wait for this rank, and this rank, which waits for another.
  void WakeAll() const;

  template <typename T>
  absl::Status Sum(T* data, size_t count, const Summed& summed);
  template <typename T>
  absl::Status AddInParts(T* data, size_t count);
  template <typename T>
  void AddSlots(T* out, size_t begin, size_t end) const;

  void StartChunk();
  // Says that this rank has come to the next step; waits until all have.
  absl::Status MeetPeers();
  void Arrive();
  absl::Status AwaitPeers();
  absl::Status CompareCalls(int rank) const;
  absl::Status WaitFor(int rank, uint32_t step);
  bool HasCome(int rank, uint32_t step) const;
  absl::Status WhyGone(uint32_t step) const;
  absl::Status Missing(uint32_t step) const;
  std::string Describe(const Call& call) const;

  std::byte* const segment_;
  const int rank_;
  const int world_size_;
  const std::vector<PeerProcess> peer_;
  const absl::Duration timeout_;

  FirstError error_;
  uint32_t step_ = 0;
  uint32_t chunk_ = 0;
  int64_t calls_ = 0;
  Call call_{};
  Clock::time_point deadline_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_COLLECTIVE_SHM_REDUCER_H_
