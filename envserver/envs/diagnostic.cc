#include "envserver/envs/diagnostic.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "services/base/random.h"

namespace flotilla {

Diagnostic::Diagnostic(const std::string& env_id) {
  spec_.set_env_id(env_id);
  spec_.add_episode_metric("score");
}

bool Diagnostic::GameOver(v1::EpisodeEnd* end) {
  (*end->mutable_metric())["score"] = score_;
  return true;
}

void Diagnostic::AddObservation(const std::string& path, v1::DType dtype,
                                const std::vector<int64_t>& shape, float low,
                                float high) {
  v1::Leaf* leaf = spec_.add_observation();
  leaf->set_path(path);
  leaf->set_dtype(dtype);
  leaf->mutable_shape()->Add(shape.begin(), shape.end());
  leaf->add_low(low);
  leaf->add_high(high);
}

v1::Leaf* Diagnostic::AddChoice(const std::string& path, int64_t num_values) {
  v1::Leaf* leaf = spec_.add_action();
  leaf->set_path(path);
  leaf->set_dtype(v1::INT64);
  leaf->set_num_values(num_values);
  return leaf;
}

namespace {

class Bandit final : public Diagnostic {
 public:
  Bandit() : Diagnostic("Bandit") {
    AddObservation("", v1::FLOAT32, {1}, 0, 1);
    AddChoice("", 10);
  }

  absl::Status Reset(uint64_t, Row observation) override {
    WriteValue(observation[0], 0, 1.0f);
    return absl::OkStatus();
  }

  absl::StatusOr<Outcome> Step(ConstRow action, Row observation) override {
    WriteValue(observation[0], 0, 1.0f);
    score_ = ReadValue<int64_t>(action[0]) == 7 ? 1 : 0;
    return Outcome{.reward = static_cast<float>(score_), .terminated = true};
  }
};

class Stochastic final : public Diagnostic {
 public:
  Stochastic() : Diagnostic("Stochastic") {
    AddObservation("", v1::FLOAT32, {1}, 0, 1);
    AddChoice("", 2);
  }

  absl::Status Reset(uint64_t, Row observation) override {
    steps_ = zeros_ = 0;
    WriteValue(observation[0], 0, 0.0f);
    return absl::OkStatus();
  }

  absl::StatusOr<Outcome> Step(ConstRow action, Row observation) override {
    if (steps_++ % 4 == 0) hand_ = 0;
    const int zero = ReadValue<int64_t>(action[0]) == 0 ? 1 : 0;
    hand_ += zero;
    zeros_ += zero;
    const double off = (static_cast<double>(zeros_) / steps_ - 0.75) / 0.25;
    score_ = std::max(0.0, 1 - std::pow(off, 4));
    WriteValue(observation[0], 0, 0.0f);
    return Outcome{.reward = steps_ % 4 == 0 && hand_ == 3 ? 1.0f : 0.0f,
                   .terminated = steps_ == 500};
  }

 private:
  int steps_ = 0;
  int zeros_ = 0;
  int hand_ = 0;  // zeros among the newest one to four actions
};

class Password final : public Diagnostic {
 public:
  Password() : Diagnostic("Password") {
    AddObservation("", v1::FLOAT32, {std::ssize(kPassword)}, -1, 1);
    AddChoice("", 2);
  }

  absl::Status Reset(uint64_t, Row observation) override {
    typed_.clear();
    Observe(observation);
    return absl::OkStatus();
  }

  absl::StatusOr<Outcome> Step(ConstRow action, Row observation) override {
    typed_.push_back(ReadValue<int64_t>(action[0]));
    Observe(observation);
    score_ = std::equal(typed_.begin(), typed_.end(), std::begin(kPassword),
                        std::end(kPassword))
                 ? 1
                 : 0;
    return Outcome{.reward = static_cast<float>(score_),
                   .terminated = std::ssize(typed_) == std::ssize(kPassword)};
  }

 private:
  // No bit follows from the one before, nor from its place.
  static constexpr int64_t kPassword[] = {1, 1, 0, 1, 0, 0, 0, 1};

  void Observe(Row observation) const {
    for (size_t i = 0; i < std::size(kPassword); ++i) {
      const float bit = i < typed_.size() ? (typed_[i] == 1 ? 1.0f : -1.0f) : 0;
      WriteValue(observation[0], i, bit);
    }
  }

  std::vector<int64_t> typed_;
};

class Memory final : public Diagnostic {
 public:
  Memory() : Diagnostic("Memory") {
    AddObservation("", v1::FLOAT32, {kCues + 1}, 0, 1);
    AddChoice("", kCues);
  }

  absl::Status Reset(uint64_t seed, Row observation) override {
    cue_ = static_cast<int64_t>(Random(seed).Below(kCues));
    steps_ = 0;
    Observe(observation);
    return absl::OkStatus();
  }

  absl::StatusOr<Outcome> Step(ConstRow action, Row observation) override {
    const bool asked = steps_++ == kAskedAt;
    score_ = asked && ReadValue<int64_t>(action[0]) == cue_ ? 1 : 0;
    Observe(observation);
    return Outcome{.reward = static_cast<float>(score_), .terminated = asked};
  }

 private:
  static constexpr int64_t kCues = 4;
  static constexpr int kAskedAt = 7;

  void Observe(Row observation) const {
    for (int64_t i = 0; i < kCues; ++i) {
      WriteValue(observation[0], i, steps_ == 0 && i == cue_ ? 1.0f : 0.0f);
    }
    WriteValue(observation[0], kCues, steps_ == kAskedAt ? 1.0f : 0.0f);
  }

  int64_t cue_ = 0;
  int steps_ = 0;
};

}  // namespace

std::unique_ptr<Environment> MakeBandit() { return std::make_unique<Bandit>(); }

std::unique_ptr<Environment> MakeStochastic() {
  return std::make_unique<Stochastic>();
}

std::unique_ptr<Environment> MakePassword() {
  return std::make_unique<Password>();
}

std::unique_ptr<Environment> MakeMemory() { return std::make_unique<Memory>(); }

}  // namespace flotilla
