#include "services/coordinator/kv_store.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/base/printable.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

// What an entry costs beside its bytes, so that many empty ones are not free.
constexpr size_t kEntryBytes = 64;

size_t CostOf(const std::string& key, const std::string& value) {
  return key.size() + value.size() + kEntryBytes;
}

absl::Status CheckKey(const std::string& key) {
  if (key.size() <= KvStore::kMaxKeyBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("key \"", PrintableLine(key, 32), "\" has ", key.size(),
                   " bytes, want at most ", KvStore::kMaxKeyBytes));
}

}  // namespace

absl::Status KvStore::Set(uint64_t generation, const std::string& key,
                          const std::string& value) {
  Calls calls;
  absl::Status status;
  {
    MutexLock lock(&mu_);
    status = Put(generation, key, value, &calls);
  }
  Run(calls);
  return status;
}

absl::StatusOr<int64_t> KvStore::Add(uint64_t generation,
                                     const std::string& key, int64_t amount) {
  Calls calls;
  int64_t sum = 0;
  {
    MutexLock lock(&mu_);
    const std::string* old = Find(generation, key);
    if (old != nullptr && !absl::SimpleAtoi(*old, &sum)) {
      return absl::InvalidArgumentError(
          absl::StrCat("key \"", key, "\" holds ", old->size(),
                       " bytes that are no number: nothing can be added"));
    }
    if (__builtin_add_overflow(sum, amount, &sum)) {
      return absl::OutOfRangeError(absl::StrCat(
          "key \"", key, "\" plus ", amount, " does not fit into 64 bits"));
    }
    RETURN_IF_ERROR(Put(generation, key, absl::StrCat(sum), &calls));
  }
  Run(calls);
  return sum;
}

absl::StatusOr<std::string> KvStore::CompareSet(uint64_t generation,
                                                const std::string& key,
                                                const std::string& expected,
                                                const std::string& desired) {
  Calls calls;
  std::string result;
  {
    MutexLock lock(&mu_);
    RETURN_IF_ERROR(CheckOpen(generation));
    const std::string* old = Find(generation, key);
    const bool matches = old == nullptr ? expected.empty() : *old == expected;
    if (matches) {
      RETURN_IF_ERROR(Put(generation, key, desired, &calls));
      result = desired;
    } else if (old != nullptr) {
      result = *old;
    }
  }
  Run(calls);
  return result;
}

absl::StatusOr<bool> KvStore::Check(
    uint64_t generation, const std::vector<std::string>& keys) const {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(CheckOpen(generation));
  for (const std::string& key : keys) {
    if (Find(generation, key) == nullptr) return false;
  }
  return true;
}

absl::StatusOr<bool> KvStore::Delete(uint64_t generation,
                                     const std::string& key) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(CheckOpen(generation));
  const std::string* old = Find(generation, key);
  if (old == nullptr) return false;
  total_bytes_ -= CostOf(key, *old);
  generations_[generation].values.erase(key);
  return true;
}

absl::StatusOr<int64_t> KvStore::Count(uint64_t generation) const {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(CheckOpen(generation));
  const auto found = generations_.find(generation);
  if (found == generations_.end()) return 0;
  return static_cast<int64_t>(found->second.values.size());
}

uint64_t KvStore::Wait(uint64_t generation, std::vector<std::string> keys,
                       absl::Time deadline, Done done) {
  size_t bytes = 0;
  for (const std::string& key : keys) bytes += CostOf(key, "");
  Calls calls;
  uint64_t number;
  {
    MutexLock lock(&mu_);
    number = next_waiter_++;
    const auto waiter =
        waiters_
            .emplace(number, Waiter{number, generation, std::move(keys), bytes,
                                    0, deadline, std::move(done)})
            .first;
    waiting_bytes_ += bytes;
    absl::Status status = CheckOpen(generation);
    for (const std::string& key : waiter->second.keys) {
      if (status.ok()) status = CheckKey(key);
    }
    if (status.ok() && waiting_bytes_ > kMaxWaitingBytes) {
      status = absl::ResourceExhaustedError(absl::StrCat(
          waiter->second.keys.size(), " keys of ", bytes,
          " bytes are too many to wait for: others wait for ",
          waiting_bytes_ - bytes, " of ", kMaxWaitingBytes, " bytes"));
    }
    if (status.ok() && waiters_.size() > kMaxWaiters) {
      status = absl::ResourceExhaustedError(
          absl::StrCat(kMaxWaiters, " calls wait for keys already"));
    }
    if (status.ok()) {
      Proceed(waiter, &calls);
    } else {
      End(waiter, status, &calls);
    }
  }
  Run(calls);
  return number;
}

bool KvStore::Cancel(uint64_t waiter) {
  MutexLock lock(&mu_);
  const auto found = waiters_.find(waiter);
  if (found == waiters_.end()) return false;
  Unlist(found->second);
  Erase(found);
  return true;
}

void KvStore::Fence(uint64_t generation, const std::string& reason) {
  Calls calls;
  {
    MutexLock lock(&mu_);
    if (generation <= fenced_) return;
    fenced_ = generation;
    fence_reason_ = reason;
    for (auto it = waiters_.begin(); it != waiters_.end();) {
      const auto waiter = it++;
      const absl::Status open = CheckOpen(waiter->second.generation);
      if (!open.ok()) End(waiter, open, &calls);
    }
    const auto end = generations_.upper_bound(fenced_);
    for (auto it = generations_.begin(); it != end; ++it) {
      for (const auto& [key, value] : it->second.values) {
        total_bytes_ -= CostOf(key, value);
      }
    }
    generations_.erase(generations_.begin(), end);
  }
  Run(calls);
}

void KvStore::Expire(absl::Time now) {
  Calls calls;
  {
    MutexLock lock(&mu_);
    for (auto it = waiters_.begin(); it != waiters_.end();) {
      const auto waiter = it++;
      const Waiter& late = waiter->second;
      if (now < late.deadline) continue;
      const std::string key = late.keys[late.missing];
      Unlist(late);
      End(waiter,
          absl::DeadlineExceededError(absl::StrCat("nobody has set key \"", key,
                                                   "\" in generation ",
                                                   late.generation)),
          &calls);
    }
  }
  Run(calls);
}

void KvStore::FailAll(const absl::Status& status) {
  Calls calls;
  {
    MutexLock lock(&mu_);
    while (!waiters_.empty()) {
      Unlist(waiters_.begin()->second);
      End(waiters_.begin(), status, &calls);
    }
  }
  Run(calls);
}

void KvStore::Run(const Calls& calls) {
  for (const std::function<void()>& call : calls) call();
}

absl::Status KvStore::CheckOpen(uint64_t generation) const {
  if (generation > fenced_) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("generation ", generation, " is fenced: ", fence_reason_));
}

absl::Status KvStore::Put(uint64_t generation, const std::string& key,
                          const std::string& value, Calls* calls) {
  RETURN_IF_ERROR(CheckOpen(generation));
  RETURN_IF_ERROR(CheckKey(key));
  if (value.size() > kMaxValueBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the value of key \"", key, "\" has ", value.size(),
                     " bytes, want at most ", kMaxValueBytes));
  }
  const std::string* old = Find(generation, key);
  const size_t freed = old == nullptr ? 0 : CostOf(key, *old);
  const size_t total = total_bytes_ - freed + CostOf(key, value);
  if (total > kMaxTotalBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("key \"", key, "\" with ", value.size(),
                     " bytes does not fit: the store holds ", total_bytes_,
                     " of ", kMaxTotalBytes, " bytes"));
  }
  total_bytes_ = total;
  Generation& here = generations_[generation];
  here.values[key] = value;
  const auto waiting = here.waiting.find(key);
  if (waiting == here.waiting.end()) return absl::OkStatus();
  const std::vector<uint64_t> numbers = std::move(waiting->second);
  here.waiting.erase(waiting);
  for (uint64_t number : numbers) {
    Proceed(waiters_.find(number), calls);
  }
  return absl::OkStatus();
}

const std::string* KvStore::Find(uint64_t generation,
                                 const std::string& key) const {
  const auto here = generations_.find(generation);
  if (here == generations_.end()) return nullptr;
  const auto found = here->second.values.find(key);
  return found == here->second.values.end() ? nullptr : &found->second;
}

// Ends the wait, or lists it under the first key that is missing. Keys that
// were there may have been deleted since: all are looked at again at the end.
void KvStore::Proceed(std::map<uint64_t, Waiter>::iterator waiter,
                      Calls* calls) {
  Waiter& w = waiter->second;
  const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    while (w.missing < w.keys.size() &&
           Find(w.generation, w.keys[w.missing]) != nullptr) {
      ++w.missing;
    }
    return w.missing == w.keys.size();
  };
  if (there()) {
    w.missing = 0;
    if (there()) {
      End(waiter, w.keys.empty() ? "" : *Find(w.generation, w.keys[0]), calls);
      return;
    }
  }
  generations_[w.generation].waiting[w.keys[w.missing]].push_back(w.number);
}

void KvStore::End(std::map<uint64_t, Waiter>::iterator waiter,
                  absl::StatusOr<std::string> result, Calls* calls) {
  calls->push_back([done = std::move(waiter->second.done),
                    result = std::move(result)] { done(result); });
  Erase(waiter);
}

void KvStore::Erase(std::map<uint64_t, Waiter>::iterator waiter) {
  waiting_bytes_ -= waiter->second.bytes;
  waiters_.erase(waiter);
}

void KvStore::Unlist(const Waiter& waiter) {
  const auto here = generations_.find(waiter.generation);
  if (here == generations_.end()) return;
  const auto found = here->second.waiting.find(waiter.keys[waiter.missing]);
  if (found == here->second.waiting.end()) return;
  std::erase(found->second, waiter.number);
  if (found->second.empty()) here->second.waiting.erase(found);
}

}  // namespace flotilla
