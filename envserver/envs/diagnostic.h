#ifndef FLOTILLA_ENVSERVER_ENVS_DIAGNOSTIC_H_
#define FLOTILLA_ENVSERVER_ENVS_DIAGNOSTIC_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "envserver/environment.h"

namespace flotilla {

// Ten small tasks, each failed by one kind of bug and learned in seconds by a
// learner that has none; after PufferLib's sanity environments. All have the
// metric "score" in [0, 1], which is the return too unless said otherwise, and
// draw all that is random from the episode's seed.

// What they share: a specification to fill, and the score.
class Diagnostic : public Environment {
 public:
  const v1::EnvSpec& spec() const override { return spec_; }
  bool GameOver(v1::EpisodeEnd* end) override;

 protected:
  explicit Diagnostic(const std::string& env_id);

  // Leaves have to be added in the order of their paths.
  void AddObservation(const std::string& path, v1::DType dtype,
                      const std::vector<int64_t>& shape, float low, float high);
  v1::Leaf* AddChoice(const std::string& path, int64_t num_values);

  v1::EnvSpec spec_;
  double score_ = 0;  // of the episode, as of its last step
};

// Does it learn anything? One of ten arms pays, always the same.
//
//   observation  float32 [1]  1
//   action       int64 []     an arm
//   reward       1 for arm 7, else 0; one step an episode
std::unique_ptr<Environment> MakeBandit();

// Can it learn a mixture? Of each four actions three should be 0, no matter which,
// and neither the others nor their number are seen: the best is to draw 0 with
// probability 3/4, and whoever always does the same gets nothing.
//
//   observation  float32 [1]  0
//   action       int64 []     0 or 1
//   reward       1 with every fourth action, of 500, if three of the four were 0
//   score        1 - ((share of 0 - 0.75) / 0.25)^4, at least 0: flat at the top,
//                as the share varies by 0.02 in 500 draws; not the return
std::unique_ptr<Environment> MakeStochastic();

// Does it explore, and keep what it found? A password of eight bits, always the
// same, is worth something only if all of them are right.
//
//   observation  float32 [8]  the bits typed so far, -1 or 1; 0: not yet
//   action       int64 []     the next bit
//   reward       1 with the last bit if all were right, else 0
std::unique_ptr<Environment> MakePassword();

// Does it remember? A cue, seen in the first step alone, is asked for after six
// more. Without memory the score is 0.25.
//
//   observation  float32 [5]  the cue, one of four; whether it is asked for
//   action       int64 []     a cue; ignored until it is asked for
//   reward       1 for the right answer, with which the episode ends, else 0
std::unique_ptr<Environment> MakeMemory();

// Are actions credited with what follows? Four targets on the edge of a grid are
// to be stepped on; each puts the agent back to the middle, two steps from all of
// them, and the episode's eight steps suffice for just these ways.
//
//   observation  float32 [25]  row by row: -1 the agent, 1 a target, else 0
//   action       int64 []      one of eight directions, clockwise from up
//   reward       0.25 at a target not reached before, else 0
std::unique_ptr<Environment> MakeSquared();

// Do continuous actions work? A point is pushed to a target in a square that it
// must not leave, within 50 steps.
//
//   observation  float32 [6]  position, velocity, target minus position; x, y each
//   action       float32 [2]  acceleration, of which a tenth is taken
//   reward       how much nearer it got; at the target 1 more, outside 1 less,
//                both of which end the episode
//   score        1 if the target was reached, else 0; not the return
std::unique_ptr<Environment> MakeContinuous();

// Is every leaf seen, and every choice made? A quarter of an image is brighter
// than the others, and of five flags more are up or more are down: both answers
// have to be right. An image not seen costs three quarters, flags the half.
//
//   observation  flags  uint8 [5]      0 or 1
//                image  uint8 [36, 36]
//   action       flags  int64 []       1 if more of them are up
//                image  int64 []       the bright quarter, row by row
//   reward       1 if both are right, else 0; one step an episode
//
// `hide`, the path of a leaf, leaves it blank, to see the score fail; "": none.
// Errors: kInvalidArgument if there is no such leaf.
absl::StatusOr<std::unique_ptr<Environment>> MakeSpaces(
    const std::string& hide);

// Are masks heeded? Each of four clues has two actions, of which one is forbidden
// at a time. A policy sees the clue and not the mask: one that is not held back by
// it does what is forbidden half of the time, which ends the episode.
//
//   observation  clue  float32 [4]  one of four
//                mask  uint8 [8]    forbids the one or other action of each clue
//   action       int64 []           of clue c: c and c + 4
//   reward       1/8 for the clue's allowed action, else 0; eight steps
//
// `hide_mask` shows a mask that forbids nothing, to see the score fail.
std::unique_ptr<Environment> MakeMask(bool hide_mask);

// Are agents told apart? Each of two has to do what is wrong for the other.
//
//   observation  float32 [1]  the agent's number, 0 or 1
//   action       int64 []     a number
//   reward       1 for the agent's own, else 0; one step an episode
std::unique_ptr<MultiAgentEnvironment> MakeMultiagent();

// Does who plays against itself get better? Two take turns to take one to three of
// some stones, and who takes the last one wins: by leaving a multiple of four,
// which whoever begins always can. The loser learns it while it is not active.
//
//   observation  float32 [22]  1 at how many are left, of 5 to 21 at first
//   action       int64 []      one less than how many are taken
//   reward       1 for a win, -1 for a defeat
//   score        1 or 0; not the return
//
// `opponent` "best" is one that makes no mistake, and lets the one agent begin: to
// see how good it is. "": two agents.
// Errors: kInvalidArgument for another.
absl::StatusOr<std::unique_ptr<MultiAgentEnvironment>> MakeSelfplay(
    const std::string& opponent);

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_DIAGNOSTIC_H_
