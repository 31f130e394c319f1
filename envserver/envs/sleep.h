#ifndef FLOTILLA_ENVSERVER_ENVS_SLEEP_H_
#define FLOTILLA_ENVSERVER_ENVS_SLEEP_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "envserver/environment.h"
#include "flotilla/v1/config.pb.h"
#include "services/base/random.h"

namespace flotilla {

// Steps that take a set time and no CPU, for scaling and straggler tests; see
// SleepOptions in config.proto. Rows of a group sleep at the same time.
//
//   observation  uint8 [observation_bytes]  the step's number, modulo 256
//   action       int64 []                   0 or 1, ignored
//   reward       1 a step
class Sleep final : public Environment {
 public:
  // Errors: kInvalidArgument naming the option that is out of range.
  static absl::StatusOr<std::unique_ptr<Environment>> Make(
      const v1::SleepOptions& options, uint64_t worker_id);

  const v1::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(uint64_t seed, Row observation) override;
  absl::StatusOr<Outcome> Step(ConstRow action, Row observation) override;

 private:
  Sleep(const v1::SleepOptions& options, uint64_t worker_id);
  void Observe(Row observation) const;

  const v1::SleepOptions options_;
  const double factor_;  // of a slow worker, else 1
  v1::EnvSpec spec_;
  Random random_{0};
  uint64_t step_ = 0;
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_SLEEP_H_
