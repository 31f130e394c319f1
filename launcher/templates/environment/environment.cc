// An environment for Flotilla, and the program that serves it: env.server.
// README.md says how to build and train it.
//
// Step limits (max_episode_steps), resets, seeds, threads and statistics are done
// for you; so is whatever a learner wants of a server.

#include <memory>

#include "absl/strings/str_cat.h"
#include "envserver/env_server_main.h"
#include "services/base/random.h"

namespace {

using namespace flotilla;

// Start somewhere in a corridor, reach its right end. Actions are 0 (left) and 1
// (right); the place is seen, and so is a 1.
class Corridor : public Environment {
 public:
  // An option that does not fit is refused before anything is trained.
  static absl::StatusOr<std::unique_ptr<Corridor>> Make(int64_t size) {
    if (size < 2) {
      return absl::InvalidArgumentError(absl::StrCat(
          "env.options.kwargs.size is ", size, ", want 2 or more"));
    }
    return std::make_unique<Corridor>(size);
  }

  explicit Corridor(int64_t size) : size_(size) {
    v1::Leaf* seen = spec_.add_observation();
    seen->set_dtype(v1::FLOAT32);
    seen->add_shape(2);
    v1::Leaf* move = spec_.add_action();
    move->set_dtype(v1::INT64);
    move->set_num_values(2);
    spec_.set_max_episode_steps(100);
  }

  // What it shows and takes; constant.
  const v1::EnvSpec& spec() const override { return spec_; }

  // The same seed begins the same episode.
  absl::Status Reset(uint64_t seed, Row observation) override {
    at_ = Random(seed).Below(size_ - 1);
    Observe(observation);
    return absl::OkStatus();
  }

  // An error costs this row its episode, and the run nothing.
  absl::StatusOr<Outcome> Step(ConstRow action, Row observation) override {
    const bool right = ReadValue<int64_t>(action[0]) == 1;
    if (right || at_ > 0) at_ += right ? 1 : -1;
    Observe(observation);
    const bool there = at_ == size_ - 1;
    return Outcome{.reward = there ? 1.0f : -0.01f, .terminated = there};
  }

 private:
  void Observe(Row observation) const {
    const float place = static_cast<float>(at_) / static_cast<float>(size_);
    WriteValue<float>(observation[0], 0, place);
    WriteValue<float>(observation[0], 1, 1.0f);
  }

  const int64_t size_;
  int64_t at_ = 0;
  v1::EnvSpec spec_;
};

}  // namespace

// Any number of environments, each with the options that env.options.kwargs may
// hold: name, default, and a line for people.
int main(int argc, char** argv) {
  EnvironmentRegistry registry;
  registry.Add("Corridor-v0",
               [](const EnvironmentArguments& arguments) {
                 return Corridor::Make(arguments.Int("size"));
               },
               {{"size", 8, "cells, the goal's among them"}});
  return EnvServerMain(argc, argv, registry);
}
