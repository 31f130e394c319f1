// A server with an environment of its own: README, "Add an environment".

#include <memory>

#include "envserver/env_server_main.h"
#include "services/base/random.h"

// Start somewhere in a corridor, reach its right end. Actions are 0 (left) and 1
// (right).
class Corridor : public flotilla::Environment {
 public:
  explicit Corridor(int64_t size) : size_(size) {
    flotilla::v1::Leaf* seen = spec_.add_observation();
    seen->set_dtype(flotilla::v1::FLOAT32);
    seen->add_shape(2);
    flotilla::v1::Leaf* move = spec_.add_action();
    move->set_dtype(flotilla::v1::INT64);
    move->set_num_values(2);
    spec_.set_max_episode_steps(100);
  }

  const flotilla::v1::EnvSpec& spec() const override { return spec_; }

  absl::Status Reset(uint64_t seed, flotilla::Row observation) override {
    at_ = flotilla::Random(seed).Below(size_ - 1);
    Observe(observation);
    return absl::OkStatus();
  }

  absl::StatusOr<flotilla::Outcome> Step(flotilla::ConstRow action,
                                         flotilla::Row observation) override {
    const bool right = flotilla::ReadValue<int64_t>(action[0]) == 1;
    if (right || at_ > 0) at_ += right ? 1 : -1;
    Observe(observation);
    const bool there = at_ == size_ - 1;
    return flotilla::Outcome{.reward = there ? 1.0f : -0.01f,
                             .terminated = there};
  }

 private:
  void Observe(flotilla::Row observation) const {
    flotilla::WriteValue<float>(observation[0], 0, 1.0f * at_ / size_);
    flotilla::WriteValue<float>(observation[0], 1, 1);
  }

  const int64_t size_;
  int64_t at_ = 0;
  flotilla::v1::EnvSpec spec_;
};

int main(int argc, char** argv) {
  flotilla::EnvironmentRegistry registry;
  registry.Add("Corridor-v0",
               [](const flotilla::EnvironmentArguments& arguments) {
                 return std::make_unique<Corridor>(arguments.Int("size"));
               },
               {{"size", 8, "cells, the goal's among them"}});
  return flotilla::EnvServerMain(argc, argv, registry);
}
