#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "envserver/envs/diagnostic.h"
#include "services/base/random.h"

namespace flotilla {
namespace {

v1::EnvSpec MakeSpec(const std::string& env_id, int agents, int64_t numbers,
                     int64_t choices) {
  v1::EnvSpec spec;
  spec.set_env_id(env_id);
  spec.set_agents(agents);
  spec.add_episode_metric("score");
  v1::Leaf* observation = spec.add_observation();
  observation->set_dtype(v1::FLOAT32);
  observation->add_shape(numbers);
  observation->add_low(0);
  observation->add_high(1);
  v1::Leaf* action = spec.add_action();
  action->set_dtype(v1::INT64);
  action->set_num_values(choices);
  return spec;
}

class Multiagent final : public MultiAgentEnvironment {
 public:
  const v1::EnvSpec& spec() const override { return spec_; }

  absl::Status ResetSlots(uint64_t, std::span<Slot> slots) override {
    Observe(slots);
    return absl::OkStatus();
  }

  absl::Status StepSlots(std::span<Slot> slots) override {
    for (size_t s = 0; s < slots.size(); ++s) {
      const bool own =
          ReadValue<int64_t>(slots[s].action[0]) == static_cast<int64_t>(s);
      slots[s].outcome = {.reward = own ? 1.0f : 0.0f, .terminated = true};
      score_[s] = own ? 1 : 0;
    }
    Observe(slots);
    return absl::OkStatus();
  }

  bool SlotGameOver(size_t slot, v1::EpisodeEnd* end) override {
    (*end->mutable_metric())["score"] = score_[slot];
    return true;
  }

 private:
  static void Observe(std::span<Slot> slots) {
    for (size_t s = 0; s < slots.size(); ++s) {
      WriteValue(slots[s].observation[0], 0, static_cast<float>(s));
    }
  }

  const v1::EnvSpec spec_ = MakeSpec("Multiagent", 2, 1, 2);
  double score_[2] = {};
};

class Selfplay final : public MultiAgentEnvironment {
 public:
  explicit Selfplay(bool against_best)
      : spec_(MakeSpec("Selfplay", against_best ? 1 : 2, kMost + 1, kTake)) {}

  const v1::EnvSpec& spec() const override { return spec_; }

  absl::Status ResetSlots(uint64_t seed, std::span<Slot> slots) override {
    Random random(seed);
    // One from which whoever begins can win.
    do {
      left_ = kLeast + static_cast<int64_t>(random.Below(kMost - kLeast + 1));
    } while (left_ % (kTake + 1) == 0);
    turn_ = random.Below(slots.size());
    Observe(slots);
    return absl::OkStatus();
  }

  absl::Status StepSlots(std::span<Slot> slots) override {
    won_ = kNobody;
    left_ -= std::min(left_, 1 + ReadValue<int64_t>(slots[turn_].action[0]));
    if (slots.size() == 1) {
      if (left_ == 0) {
        End(slots, /*won=*/0);
      } else {
        // What can win does, and all else is lost against who plays as well.
        left_ -= std::max<int64_t>(1, left_ % (kTake + 1));
        if (left_ == 0) End(slots, /*won=*/1);
      }
    } else {
      if (left_ == 0) End(slots, turn_);
      turn_ = 1 - turn_;
    }
    Observe(slots);
    return absl::OkStatus();
  }

  bool SlotGameOver(size_t slot, v1::EpisodeEnd* end) override {
    (*end->mutable_metric())["score"] = slot == won_ ? 1 : 0;
    return true;
  }

 private:
  static constexpr int64_t kLeast = 5;
  static constexpr int64_t kMost = 21;
  static constexpr int64_t kTake = 3;  // stones at most
  static constexpr size_t kNobody = 2;

  void End(std::span<Slot> slots, size_t won) {
    won_ = won;
    for (size_t s = 0; s < slots.size(); ++s) {
      slots[s].outcome = {.reward = s == won ? 1.0f : -1.0f,
                          .terminated = true};
    }
  }

  void Observe(std::span<Slot> slots) const {
    for (size_t s = 0; s < slots.size(); ++s) {
      slots[s].active = s == turn_;
      for (int64_t n = 0; n <= kMost; ++n) {
        WriteValue(slots[s].observation[0], static_cast<size_t>(n),
                   n == left_ ? 1.0f : 0.0f);
      }
    }
  }

  const v1::EnvSpec spec_;
  int64_t left_ = 0;
  size_t turn_ = 0;
  // The last game; with one slot, 1 is the scripted player.
  size_t won_ = kNobody;
};

}  // namespace

std::unique_ptr<MultiAgentEnvironment> MakeMultiagent() {
  return std::make_unique<Multiagent>();
}

absl::StatusOr<std::unique_ptr<MultiAgentEnvironment>> MakeSelfplay(
    const std::string& opponent) {
  if (opponent.empty() || opponent == "best") {
    return std::make_unique<Selfplay>(opponent == "best");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("env.options.kwargs.opponent is \"", opponent,
                   "\", want best, or \"\" for two agents"));
}

}  // namespace flotilla
