#ifndef FLOTILLA_SERVICES_ENV_CONFORMANCE_TRACE_H_
#define FLOTILLA_SERVICES_ENV_CONFORMANCE_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "flotilla/v1/env.pb.h"

namespace flotilla {

// What one row of a stream saw in one step; arrays by their hashes, so that
// large observations cost nothing.
struct RowStep {
  std::vector<size_t> observation;  // per leaf
  uint32_t reward = 0;              // the float's bits
  bool terminated = false;
  bool truncated = false;
  std::vector<size_t> final_observation;  // per leaf, if it ended
  bool game_over = false;                 // there was an EpisodeEnd
  double raw_return = 0;                  // of it
  int64_t length = 0;
  bool error = false;   // it was in StepBatch.error
  bool active = true;   // if not, its observation is left out
  bool begins = false;  // its environment's next episode, after another

  bool ended() const { return terminated || truncated; }
};

// All of a stream: per row over all groups, per step; [0] is the reset.
using Trace = std::vector<std::vector<RowStep>>;

// Where two traces of the same seeds and actions first differ, in words, as far
// as both go: "row 2, step 17: observation leaf \"x\" differs". "" if nowhere.
// After an error a row is not compared any more: it may come back at any time.
std::string FirstDifference(const v1::EnvSpec& spec, const Trace& a,
                            const Trace& b);

// Compares the first observations of the episodes after the first, each with
// that of the same row and episode in the other trace, where both follow a
// whole game. `compared`: how many there were.
std::string FirstOtherStart(const v1::EnvSpec& spec, const Trace& a,
                            const Trace& b, int* compared);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_CONFORMANCE_TRACE_H_
