#ifndef FLOTILLA_TESTS_ENVSERVER_MULTI_AGENT_HARNESS_H_
#define FLOTILLA_TESTS_ENVSERVER_MULTI_AGENT_HARNESS_H_

#include <glog/logging.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "envserver/multi_agent_environment.h"

namespace flotilla {

// One environment whose action is one choice, called as ThreadVectorEnv calls
// it: with memory that is not aligned.
class MultiAgentHarness {
 public:
  explicit MultiAgentHarness(std::unique_ptr<MultiAgentEnvironment> environment)
      : environment_(std::move(environment)),
        slots_(static_cast<size_t>(environment_->spec().agents())),
        memory_(slots_.size()),
        observation_(slots_.size()),
        action_(slots_.size()),
        action_bytes_(slots_.size()) {
    for (size_t s = 0; s < slots_.size(); ++s) {
      memory_[s].reserve(8);
      for (const v1::Leaf& leaf : environment_->spec().observation()) {
        size_t bytes = leaf.dtype() == v1::FLOAT32 ? sizeof(float) : 1;
        for (int64_t dim : leaf.shape()) bytes *= static_cast<size_t>(dim);
        memory_[s].emplace_back(bytes + 1);
        observation_[s].push_back(std::span(memory_[s].back()).subspan(1));
      }
      action_bytes_[s] = std::as_bytes(std::span(&action_[s], 1));
      slots_[s].observation = observation_[s];
      slots_[s].action = {&action_bytes_[s], 1};
    }
  }

  void Reset(uint64_t seed) {
    Prepare();
    const absl::Status status = environment_->ResetSlots(seed, slots_);
    CHECK(status.ok()) << status;
  }

  // An action for each slot, be it active or not.
  void Step(const std::vector<int64_t>& actions) {
    std::copy(actions.begin(), actions.end(), action_.begin());
    Prepare();
    const absl::Status status = environment_->StepSlots(slots_);
    CHECK(status.ok()) << status;
  }

  // Of the slot whose turn it is; the others' would be wrong.
  void Move(int64_t action) {
    std::vector<int64_t> actions(slots_.size(), 99);
    actions[Turn()] = action;
    Step(actions);
  }
  size_t Turn() const {
    const auto active = std::find_if(slots_.begin(), slots_.end(),
                                     [](const Slot& s) { return s.active; });
    CHECK(active != slots_.end());
    return static_cast<size_t>(active - slots_.begin());
  }

  const Slot& slot(size_t s) const { return slots_[s]; }
  bool over() const { return slots_[0].outcome.terminated; }
  MultiAgentEnvironment& environment() { return *environment_; }

  double Metric(size_t s, const std::string& name) {
    v1::EpisodeEnd end;
    CHECK(environment_->SlotGameOver(s, &end));
    return end.metric().at(name);
  }

  template <typename T>
  std::vector<T> Seen(size_t s, size_t leaf = 0) const {
    std::vector<T> values(observation_[s][leaf].size() / sizeof(T));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = ReadValue<T>(observation_[s][leaf], i);
    }
    return values;
  }

 private:
  void Prepare() {
    for (Slot& slot : slots_) {
      slot.acted = slot.active;
      slot.active = true;
      slot.outcome = Outcome();
    }
  }

  std::unique_ptr<MultiAgentEnvironment> environment_;
  std::vector<Slot> slots_;
  std::vector<std::vector<std::vector<std::byte>>> memory_;
  std::vector<std::vector<std::span<std::byte>>> observation_;
  std::vector<int64_t> action_;
  std::vector<std::span<const std::byte>> action_bytes_;
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_ENVSERVER_MULTI_AGENT_HARNESS_H_
