#ifndef FLOTILLA_LEARNER_NN_SAMPLING_H_
#define FLOTILLA_LEARNER_NN_SAMPLING_H_

#include <cstdint>

#include "services/base/random.h"

namespace flotilla {

// Draws one action a row from softmax(logits [R, A]) by inverting the
// cumulative distribution with one uniform number, and gives its
// log-probability. `greedy` takes the largest logit and draws nothing.
void SampleCategorical(const float* logits, int64_t rows, int64_t actions,
                       bool greedy, Random* rng, int64_t* action,  // [R]
                       float* log_prob);                           // [R]

// Draws from independent normals with means [R, A] and exp(log_std [A]).
void SampleGaussian(const float* mean, const float* log_std, int64_t rows,
                    int64_t actions, bool greedy, Random* rng,
                    float* action,     // [R, A]
                    float* log_prob);  // [R]  summed over A

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_SAMPLING_H_
