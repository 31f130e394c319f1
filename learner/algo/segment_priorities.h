#ifndef FLOTILLA_LEARNER_ALGO_SEGMENT_PRIORITIES_H_
#define FLOTILLA_LEARNER_ALGO_SEGMENT_PRIORITIES_H_

#include <cstdint>
#include <vector>

#include "learner/torch.h"
#include "services/base/random.h"

namespace flotilla {

// PufferLib's prioritised segments (pufferlib/pufferl.py, 3.0). A segment is
// one environment's column of a rollout.

// How likely each of B segments is drawn, given `advantage` [T, B] float32:
//
//   w = (sum over t of |advantage|)^alpha     p = (w + 1e-6) / (sum of w +
//   1e-6)
//
// They sum to little more than 1, as PufferLib's do.
std::vector<double> SegmentProbabilities(const torch::Tensor& advantage,
                                         double alpha);

// `count` different indices, each next one drawn from what is left with
// probabilities in proportion to `probabilities`.
std::vector<int64_t> DrawSegments(std::vector<double> probabilities,
                                  int64_t count, Random* rng);

// What a drawn segment's advantages are multiplied by, to undo some of the
// preference: (B p)^-beta, where beta grows from `beta0` with the share `done`
// of the run, to beta0 + (1 - beta0) alpha.
double SegmentWeight(double probability, int64_t segments, double alpha,
                     double beta0, double done);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_SEGMENT_PRIORITIES_H_
