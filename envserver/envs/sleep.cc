#include "envserver/envs/sleep.h"

#include <cstring>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace flotilla {

absl::StatusOr<std::unique_ptr<Environment>> Sleep::Make(
    const v1::SleepOptions& options, uint64_t worker_id) {
  constexpr double kDayMs = 24 * 3600e3;
  constexpr double kMost = 1e9;
  for (const auto& [name, value, low, high] :
       {std::tuple("step_ms", options.step_ms(), 0.0, kDayMs),
        std::tuple("jitter_ms", options.jitter_ms(), 0.0, kDayMs),
        std::tuple("episode_steps",
                   static_cast<double>(options.episode_steps()), 1.0, kMost),
        std::tuple("slow_workers", static_cast<double>(options.slow_workers()),
                   0.0, kMost),
        std::tuple("slow_factor", options.slow_factor(), 0.0, 1e6),
        std::tuple("observation_bytes",
                   static_cast<double>(options.observation_bytes()), 1.0,
                   double{1 << 25})}) {
    if (!(value >= low && value <= high)) {
      return absl::InvalidArgumentError(absl::StrCat("env.options.sleep.", name,
                                                     " is ", value, ", want ",
                                                     low, " to ", high));
    }
  }
  return std::unique_ptr<Environment>(new Sleep(options, worker_id));
}

Sleep::Sleep(const v1::SleepOptions& options, uint64_t worker_id)
    : options_(options),
      factor_(worker_id < static_cast<uint64_t>(options.slow_workers())
                  ? options.slow_factor()
                  : 1) {
  spec_.set_env_id("Sleep");
  v1::Leaf* observation = spec_.add_observation();
  observation->set_dtype(v1::UINT8);
  observation->add_shape(options.observation_bytes());
  observation->add_low(0);
  observation->add_high(255);
  v1::Leaf* action = spec_.add_action();
  action->set_dtype(v1::INT64);
  action->set_num_values(2);
  spec_.set_max_episode_steps(options.episode_steps());
}

absl::Status Sleep::Reset(uint64_t seed, Row observation) {
  random_ = Random(seed);
  step_ = 0;
  Observe(observation);
  return absl::OkStatus();
}

absl::StatusOr<Outcome> Sleep::Step(ConstRow /*action*/, Row observation) {
  ++step_;
  Observe(observation);
  Outcome outcome;
  outcome.reward = 1;
  outcome.delay =
      absl::Milliseconds(factor_ * (options_.step_ms() +
                                    options_.jitter_ms() * random_.Uniform()));
  return outcome;
}

void Sleep::Observe(Row observation) const {
  std::memset(observation[0].data(), static_cast<uint8_t>(step_),
              observation[0].size());
}

}  // namespace flotilla
