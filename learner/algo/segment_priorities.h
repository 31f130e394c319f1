#ifndef FLOTILLA_LEARNER_ALGO_SEGMENT_PRIORITIES_H_
#define FLOTILLA_LEARNER_ALGO_SEGMENT_PRIORITIES_H_

#include <cstdint>

#include "learner/torch.h"

namespace flotilla {

// PufferLib's prioritised segments (pufferlib/pufferl.py, 3.0). A segment is
// one environment's column of a rollout. All of it where its tensors lie, which the
// host does not wait for.

// How likely each of B segments is drawn, [B] float64, given `advantage` [T, B]
// float32:
//
//   w = (sum over t of |advantage|)^alpha     p = (w + 1e-6) / (sum of w +
//   1e-6)
//
// They sum to little more than 1, as PufferLib's do. What is not finite has w 0.
torch::Tensor SegmentProbabilities(const torch::Tensor& advantage,
                                   double alpha);

// `count` different segments, [count] int64, each next one drawn from what is left
// with probabilities in proportion to `probabilities` [B]: in their order the least
// of e / p, where `exponential` [B] float64 are e, of mean 1 (Efraimidis and Spirakis
// 2006).
torch::Tensor DrawSegments(const torch::Tensor& probabilities, int64_t count,
                           const torch::Tensor& exponential);

// What the advantages of segments that were drawn are multiplied by, of
// `probability` [n] among `segments`, to undo some of the preference: (B p)^-beta,
// where beta grows from `beta0` with the share `done` of the run, to
// beta0 + (1 - beta0) alpha.
torch::Tensor SegmentWeights(const torch::Tensor& probability, int64_t segments,
                             double alpha, double beta0, double done);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_SEGMENT_PRIORITIES_H_
