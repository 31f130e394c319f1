#ifndef FLOTILLA_SERVICES_COORDINATOR_KV_STORE_H_
#define FLOTILLA_SERVICES_COORDINATOR_KV_STORE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/base/mutex.h"

namespace flotilla {

// The coordinator's key-value store: small values, each private to one
// generation. A fenced generation's values are forgotten and its waiters fail.
// Which generation is current is the roster's business: any number that is not
// fenced is taken here.
//
// Thread-safe. Nothing blocks: who waits leaves a callback, which runs once, on
// the thread whose call ended the wait and without the lock. Times are the
// caller's and never go backwards.
class KvStore {
 public:
  static constexpr size_t kMaxKeyBytes = 1 << 10;
  static constexpr size_t kMaxValueBytes = 1 << 20;
  static constexpr size_t kMaxTotalBytes = 64 << 20;
  static constexpr size_t kMaxWaiters = 100'000;
  static constexpr size_t kMaxWaitingBytes = 64 << 20;  // of all waits' keys

  // Errors of all calls: kAborted if `generation` is fenced; kInvalidArgument
  // or kResourceExhausted if a key or value is too large, or the store is full.

  absl::Status Set(uint64_t generation, const std::string& key,
                   const std::string& value);

  // Adds to a decimal number; an absent one is 0. Returns the sum.
  // Errors: kInvalidArgument if what is there is no number; kOutOfRange if the
  // sum does not fit.
  absl::StatusOr<int64_t> Add(uint64_t generation, const std::string& key,
                              int64_t amount);

  // Sets `desired` if what is there is `expected`, or, with `expected` empty,
  // if nothing is. Returns what is there afterwards, "" if nothing is.
  absl::StatusOr<std::string> CompareSet(uint64_t generation,
                                         const std::string& key,
                                         const std::string& expected,
                                         const std::string& desired);

  absl::StatusOr<bool> Check(uint64_t generation,
                             const std::vector<std::string>& keys) const;
  absl::StatusOr<bool> Delete(uint64_t generation, const std::string& key);
  absl::StatusOr<int64_t> Count(uint64_t generation) const;

  // Gets the value of the first key once all `keys` are there; "" of none.
  // Ends with kDeadlineExceeded, naming the first key that is missing, when
  // Expire passes `deadline`, and with kAborted when the generation is fenced.
  // Returns a number for Cancel.
  // Errors: kResourceExhausted if too many wait, or for too many keys.
  using Done = std::function<void(absl::StatusOr<std::string>)>;
  uint64_t Wait(uint64_t generation, std::vector<std::string> keys,
                absl::Time deadline, Done done);

  // Forgets a waiter without calling it back; false if it has been called.
  bool Cancel(uint64_t waiter);

  // Ends `generation` and all before it.
  void Fence(uint64_t generation, const std::string& reason);

  // Ends waits whose time is up.
  void Expire(absl::Time now);

  // Ends all waits with `status`.
  void FailAll(const absl::Status& status);

 private:
  struct Waiter {
    uint64_t number;
    uint64_t generation;
    std::vector<std::string> keys;
    size_t bytes;    // what they take
    size_t missing;  // keys before it are there
    absl::Time deadline;
    Done done;
  };
  using Values = absl::flat_hash_map<std::string, std::string>;

  // A waiter stands in `waiters_` and in the list of the key it waits for.
  struct Generation {
    Values values;
    absl::flat_hash_map<std::string, std::vector<uint64_t>> waiting;
  };

  // Callbacks to run once the lock is released.
  using Calls = std::vector<std::function<void()>>;
  static void Run(const Calls& calls);

  absl::Status CheckOpen(uint64_t generation) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Put(uint64_t generation, const std::string& key,
                   const std::string& value, Calls* calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const std::string* Find(uint64_t generation, const std::string& key) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Proceed(std::map<uint64_t, Waiter>::iterator waiter, Calls* calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End(std::map<uint64_t, Waiter>::iterator waiter,
           absl::StatusOr<std::string> result, Calls* calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Erase(std::map<uint64_t, Waiter>::iterator waiter)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Unlist(const Waiter& waiter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  std::map<uint64_t, Generation> generations_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, Waiter> waiters_ ABSL_GUARDED_BY(mu_);  // by number
  uint64_t next_waiter_ ABSL_GUARDED_BY(mu_) = 1;
  size_t total_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  size_t waiting_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t fenced_ ABSL_GUARDED_BY(mu_) = 0;
  std::string fence_reason_ ABSL_GUARDED_BY(mu_);
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_KV_STORE_H_
