#ifndef FLOTILLA_TESTS_LEARNER_ACTOR_LEASES_H_
#define FLOTILLA_TESTS_LEARNER_ACTOR_LEASES_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "services/base/mutex.h"
#include "tests/testing/fake_coordinator_client.h"

namespace flotilla {

// A coordinator that leases out what it is offered, the newest first, and, if
// `again`, what was given back.
class Leases : public FakeCoordinatorClient {
 public:
  explicit Leases(const std::string& folder, bool again = false)
      : FakeCoordinatorClient(folder), again_(again) {}

  void Offer(const std::string& id, const std::string& address) {
    MutexLock lock(&mu_);
    free_.emplace_back().set_id(id);
    free_.back().set_address(address);
  }
  absl::StatusOr<std::vector<v1::Member>> LeaseEnvServers(
      const std::string&, int count, const std::string&,
      const std::string& lease_id) override {
    on_lease();
    MutexLock lock(&mu_);
    lease_ids_.push_back(lease_id);
    if (lease_ids_.size() <= unanswered_) {
      return absl::UnavailableError("injected: the answer is lost");
    }
    std::vector<v1::Member> leased;
    while (count-- > 0 && !free_.empty()) {
      leased.push_back(free_.back());
      free_.pop_back();
    }
    leased_.insert(leased_.end(), leased.begin(), leased.end());
    return leased;
  }
  absl::Status ReleaseEnvServers(const std::vector<std::string>& ids) override {
    MutexLock lock(&mu_);
    released_.insert(released_.end(), ids.begin(), ids.end());
    for (const std::string& id : ids) {
      for (auto it = leased_.begin(); it != leased_.end(); ++it) {
        if (it->id() != id) continue;
        if (again_) free_.push_back(*it);
        leased_.erase(it);
        break;
      }
    }
    return absl::OkStatus();
  }
  std::function<void()> on_lease = [] {};  // before anybody asks

  // The answers to the first `count` requests are lost.
  void LoseAnswers(size_t count) {
    MutexLock lock(&mu_);
    unanswered_ = count;
  }
  // Of every request, in order.
  std::vector<std::string> lease_ids() {
    MutexLock lock(&mu_);
    return lease_ids_;
  }

  std::vector<std::string> released() {
    MutexLock lock(&mu_);
    return released_;
  }

 private:
  const bool again_;
  Mutex mu_;
  std::vector<v1::Member> free_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::Member> leased_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> released_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> lease_ids_ ABSL_GUARDED_BY(mu_);
  size_t unanswered_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LEARNER_ACTOR_LEASES_H_
