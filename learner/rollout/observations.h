#ifndef FLOTILLA_LEARNER_ROLLOUT_OBSERVATIONS_H_
#define FLOTILLA_LEARNER_ROLLOUT_OBSERVATIONS_H_

#include <cstdint>

namespace flotilla {

// R observations on the host, where they lie: what an actor's policy is shown.
struct Observations {
  // Of each of Spaces.observation: R rows, as in a Batch. [leaves]
  const void* const* leaf = nullptr;
  int64_t rows = 0;  // R
  // Recurrent policies only: what each row remembers before this step.
  const float* state = nullptr;  // [R, S]
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ROLLOUT_OBSERVATIONS_H_
