#ifndef FLOTILLA_TESTS_ENVSERVER_ENVIRONMENT_HARNESS_H_
#define FLOTILLA_TESTS_ENVSERVER_ENVIRONMENT_HARNESS_H_

#include <glog/logging.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "envserver/environment.h"

namespace flotilla {

// One environment of a single observation leaf and a single action, called as
// ThreadVectorEnv calls it: with memory that is not aligned.
class EnvironmentHarness {
 public:
  explicit EnvironmentHarness(std::unique_ptr<Environment> environment)
      : environment_(std::move(environment)) {
    size_t bytes = environment_->spec().observation(0).dtype() == v1::FLOAT32
                       ? sizeof(float)
                       : 1;
    for (int64_t dim : environment_->spec().observation(0).shape()) {
      bytes *= static_cast<size_t>(dim);
    }
    memory_.resize(bytes + 1);
    observation_ = {std::span(memory_).subspan(1)};
  }

  Environment& environment() { return *environment_; }

  void Reset(uint64_t seed) {
    const absl::Status status = environment_->Reset(seed, observation_);
    CHECK(status.ok()) << status;
  }

  template <typename Action>
  Outcome Step(Action action) {
    const std::span<const std::byte> bytes =
        std::as_bytes(std::span(&action, 1));
    auto outcome = environment_->Step({&bytes, 1}, observation_);
    CHECK(outcome.ok()) << outcome.status();
    return *outcome;
  }

  // The last observation.
  template <typename T>
  std::vector<T> Observation() const {
    std::vector<T> values(observation_[0].size() / sizeof(T));
    std::memcpy(values.data(), observation_[0].data(), observation_[0].size());
    return values;
  }

 private:
  std::unique_ptr<Environment> environment_;
  std::vector<std::byte> memory_;
  std::vector<std::span<std::byte>> observation_;
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_ENVSERVER_ENVIRONMENT_HARNESS_H_
