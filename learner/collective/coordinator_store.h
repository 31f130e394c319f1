#ifndef FLOTILLA_LEARNER_COLLECTIVE_COORDINATOR_STORE_H_
#define FLOTILLA_LEARNER_COLLECTIVE_COORDINATOR_STORE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "learner/collective/first_error.h"
#include "learner/torch.h"
#include "services/coordinator/coordinator_client.h"
// Last: learner/torch.h comes before all of Torch's.
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace flotilla {

// The coordinator's key-value calls in one generation, as the store that c10d's
// process groups meet through. Nothing of one generation is seen in another.
//
// Thread-safe. `get` and `wait` block, at most for the timeout. Errors are
// thrown as c10d does it, and the first one's status is kept in error().
class CoordinatorStore : public c10d::Store {
 public:
  // `coordinator` is borrowed and must outlive this and its clones.
  CoordinatorStore(CoordinatorClient* coordinator, uint64_t generation,
                   std::chrono::milliseconds timeout);

  // The status behind the first exception of this store or a clone; OK if none.
  absl::Status error() const { return error_->Get(); }

  c10::intrusive_ptr<c10d::Store> clone() override;

  using c10d::Store::compareSet;
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  std::vector<uint8_t> compareSet(const std::string& key,
                                  const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  void ThrowUnlessOk(const absl::Status& status) const;

  CoordinatorClient* const coordinator_;
  const uint64_t generation_;
  const std::shared_ptr<FirstError> error_;  // shared with clones
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_COLLECTIVE_COORDINATOR_STORE_H_
