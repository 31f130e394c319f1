#ifndef FLOTILLA_LEARNER_ROLLOUT_ROLLOUT_H_
#define FLOTILLA_LEARNER_ROLLOUT_ROLLOUT_H_

#include <cstdint>
#include <vector>

#include "learner/rollout/spaces.h"
#include "learner/torch.h"

namespace flotilla {

// T steps of B environments: the unit of experience everywhere in the learner.
// Storage is allocated once, on the host (pinned if a GPU will read it).
//
// Time first, then batch. Row t is what was seen at t, what was done about it
// and what that brought. `observation` and `value` have one row more: what the
// last step led to, to bootstrap from.
//
// Frames are stored once. An observation of k stacked frames is row t's frame
// and the k - 1 before it, so k - 1 older frames lie ahead of row 0:
//
//   frame    0 .. k-2 | k-1    k   ...   T+k-1
//   step     (older)  |  0     1   ...   T          step t is frame t + k - 1
//
// `age[t, b]` counts the frames since the episode's reset, up to k - 1: a stack
// reaching further back repeats the reset frame.
struct Rollout {
  int64_t length = 0;  // T
  int64_t rows = 0;    // B

  torch::Tensor observation;  // [T + 1, B, D] float32, or frames
                              // [T + k, B, H, W] uint8
  torch::Tensor age;          // [T + 1, B] uint8; frames only
  torch::Tensor action;       // [T, B] int64, or [T, B, A] float32
  torch::Tensor log_prob;     // [T, B] float32   of `action`, when it was taken
  torch::Tensor value;        // [T + 1, B] float32   estimated by the actor
  torch::Tensor reward;       // [T, B] float32
  torch::Tensor terminated;   // [T, B] uint8
  torch::Tensor truncated;    // [T, B] uint8
  // Value of the final observation where a time limit ended the episode.
  torch::Tensor bootstrap_value;  // [T, B] float32
  // The final observations of episodes that a time limit ended, which resets
  // replaced: where, and each [D] float32 or newest frame [H, W] uint8 (the k -
  // 1 before it are the step's own), as bytes. Empty for other ends.
  std::vector<int64_t> final_step;         // [F]  t * B + b
  std::vector<uint8_t> final_observation;  // [F, D * 4] or [F, H * W]
  // 0 where the transition was lost: to a dead worker, a failed environment or
  // a shortened rollout. Losses skip it, traces are cut there.
  torch::Tensor valid;  // [T, B] uint8
  // What a recurrent policy remembered before step 0; nothing later is kept,
  // since replaying the steps gives it (Starts). Undefined if S is 0.
  torch::Tensor initial_state;  // [B, S] float32

  int64_t policy_version = 0;
  int64_t valid_steps = 0;  // sum of `valid`
};

// `state_size` is the policy's.
Rollout MakeRollout(const Spaces& spaces, int64_t length, int64_t rows,
                    bool pinned, int64_t state_size = 0);

// 1 where the step begins an episode, so that a recurrent policy had forgotten
// everything: after an end, or after a step that was lost. [T, B] uint8. Row 0
// is all 0: `initial_state` has been forgotten already where it had to be.
torch::Tensor Starts(const Rollout& rollout);

// The row offset of frame storage: step t's newest frame is t + this.
inline int64_t FrameOffset(const Spaces& spaces) { return spaces.stack - 1; }

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ROLLOUT_ROLLOUT_H_
