#ifndef FLOTILLA_LEARNER_ROLLOUT_ROLLOUT_H_
#define FLOTILLA_LEARNER_ROLLOUT_ROLLOUT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "learner/rollout/batch.h"
#include "learner/rollout/observation_store.h"
#include "learner/torch.h"
#include "services/env/spaces.h"

namespace flotilla {

// T steps of B environments: the unit of experience everywhere in the learner.
// Storage is allocated once: on the host (pinned if a GPU will read it), where
// actors fill it, or on a device, which learns from a copy.
//
// Time first, then batch. Row t is what was seen at t, what was done about it
// and what that brought. `observation` and `value` have one row more: what the
// last step led to, to bootstrap from.
struct Rollout {
  int64_t length = 0;  // T
  int64_t rows = 0;    // B

  ObservationStore observation;  // T + 1 steps of B rows
  Actions action;                // [T, B, ...]
  torch::Tensor log_prob;        // [T, B] float32   of `action`, when taken
  torch::Tensor value;           // [T + 1, B] float32   estimated by the actor
  torch::Tensor reward;          // [T, B] float32
  torch::Tensor terminated;      // [T, B] uint8
  torch::Tensor truncated;       // [T, B] uint8
  // Value of the final observation where a time limit ended the episode.
  torch::Tensor bootstrap_value;  // [T, B] float32
  // The final observations of episodes that a time limit ended, which resets
  // replaced: where, in any order, and what was seen (ObservationStore::EncodeRow).
  std::vector<int64_t> final_step;         // [F]  t * B + b
  std::vector<uint8_t> final_observation;  // [F, row_bytes]
  // 0 where the transition was lost: to a dead worker, a failed environment or
  // a shortened rollout. Losses skip it, traces are cut there.
  torch::Tensor valid;  // [T, B] uint8
  // What a recurrent policy remembered before step 0; nothing later is kept,
  // since replaying the steps gives it (Starts). Undefined if S is 0.
  torch::Tensor initial_state;  // [B, S] float32

  int64_t policy_version = 0;
  int64_t valid_steps = 0;  // sum of `valid`
  // Steps from the first on that a collector played, lost or not; those after only pad
  // it. 0: nobody says.
  int64_t played = 0;

  // On the host: the same on the device that learns, where an actor that decides
  // there has left what was seen and decided, and the values of final observations;
  // of decisions the host has the actions alone then. Null: it is all here, as it
  // always is for a library's algorithm (custom).
  std::shared_ptr<Rollout> there;
};

// `state_size` is the policy's.
Rollout MakeRollout(const Spaces& spaces, int64_t length, int64_t rows,
                    bool pinned, int64_t state_size = 0);

// The same in memory of `device`, which is no CPU. final_step and
// final_observation stay with the host.
Rollout MakeRolloutOn(torch::Device device, const Spaces& spaces,
                      int64_t length, int64_t rows, int64_t state_size);

// Makes `there`, of the same sizes and on a device, what `host` is. The host does
// not wait: the tensors of `host` must not change until it has waited for something
// that was computed from `there`.
void Upload(const Rollout& host, Rollout* there);

// The same of what an actor has not left there itself: how its steps ended.
void UploadOutcomes(const Rollout& host, Rollout* there);

// 1 where the step begins an episode, so that a recurrent policy had forgotten
// everything: after an end, or after a step that was lost. [T + 1, B] uint8. Row
// 0 is all 0: `initial_state` has been forgotten already where it had to be.
torch::Tensor Starts(const Rollout& rollout);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ROLLOUT_ROLLOUT_H_
