#ifndef FLOTILLA_SERVICES_ENV_VECTOR_ENV_H_
#define FLOTILLA_SERVICES_ENV_VECTOR_ENV_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/env.pb.h"

namespace flotilla {

// Where a group's observations go: for each leaf, its [R, ...] array, in the
// outgoing message or in a shared slot.
using ObservationBuffers = std::span<const std::span<std::byte>>;

// K environments in groups of R: what EnvService serves. Shapes and the meaning
// of every field are in proto/flotilla/v1/env.proto.
//
// Rows are written straight to where they travel from; the implementation fills
// every other field of the StepBatch but group, seq and payload, reusing what
// the message has allocated.
//
// Not thread-safe, but groups are independent: each may have one operation in
// flight. The destructor abandons those, once no row is running.
class VectorEnv {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;

    // Called once for each Reset and Step, when its outputs are complete:
    // inside that call when stepping is cheap, else on another thread. The
    // learner is to see the batch `delay` from now: environments that wait on
    // something slow take time and no CPU.
    virtual void OnGroupDone(int group, absl::Duration delay) = 0;

    // All rows are lost, with the process that ran them: no operation completes
    // any more. On another thread.
    virtual void OnFailure(absl::Status status) = 0;
  };

  virtual ~VectorEnv() = default;

  // Constant for the object's life.
  virtual const v1::EnvSpec& spec() const = 0;

  // Starts a new episode in every row of `group`. `observation` and `out` must
  // outlive the operation.
  virtual void Reset(int group, ObservationBuffers observation,
                     v1::StepBatch* out) = 0;

  // Steps every row of `group`. `actions` fits spec(): the caller has checked
  // sizes and ranges. All arguments must outlive the operation.
  virtual void Step(int group, const v1::ActionBatch& actions,
                    ObservationBuffers observation, v1::StepBatch* out) = 0;

  // Of MakeReplay with `frames`: what was drawn in the last operation, a frame
  // after a step, and one after a reset that began an episode, in this order.
  virtual std::span<const v1::Frame> frames() const { return {}; }
};

// Which environments a server can make.
//
// Thread-safe.
class VectorEnvFactory {
 public:
  virtual ~VectorEnvFactory() = default;

  virtual std::vector<std::string> ListEnvironments() const = 0;

  // The specification of `env_id`. May load what the environment needs.
  // Errors: kNotFound if there is no such id; kInvalidArgument, naming the
  // option, if `options` do not fit it.
  virtual absl::StatusOr<v1::EnvSpec> Describe(
      const std::string& env_id, const v1::EnvOptions& options) const = 0;

  // The rows that `hello` asks for; its fields have been checked but for env_id
  // and options. `listener` must outlive the result.
  // Errors: those of Describe.
  virtual absl::StatusOr<std::unique_ptr<VectorEnv>> Make(
      const v1::Hello& hello, VectorEnv::Listener* listener) const = 0;

  // One environment, all of its slots in one group, whose episodes begin with
  // `seeds` in turn, and are drawn if `frames`. `listener` must outlive the
  // result.
  // Errors: those of Describe; kUnimplemented; kFailedPrecondition for frames of
  // what cannot be seen.
  virtual absl::StatusOr<std::unique_ptr<VectorEnv>> MakeReplay(
      const std::string& env_id, const v1::EnvOptions& options,
      std::vector<uint64_t> seeds, bool frames,
      VectorEnv::Listener* listener) const {
    static_cast<void>(options);
    static_cast<void>(seeds);
    static_cast<void>(frames);
    static_cast<void>(listener);
    return absl::UnimplementedError(
        absl::StrCat("this server plays no game of ", env_id, " again"));
  }
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_VECTOR_ENV_H_
