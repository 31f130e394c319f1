#ifndef FLOTILLA_LEARNER_NN_VECTOR_MATH_H_
#define FLOTILLA_LEARNER_NN_VECTOR_MATH_H_

namespace flotilla {

// Makes Torch's exp, tanh and the like exact from their first use on.
//
// On CPUs they are MKL's, which chooses each one's implementation when it is
// first called. Where several threads of one operation make that call, one of
// them may get an implementation that is off by 1e-4, once: enough to end the
// equality of two runs with one seed (PyTorch issue 188792). This makes the
// first calls on one thread. Idempotent, thread-safe.
//
// A program that links it also gives MKL's matrix products the full width of an
// AMD CPU, and has them round in one way, from AVX2 on: see vector_math.cc. Who sets
// MKL_CBWR has the last word on the latter.
void SettleVectorMath();

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_VECTOR_MATH_H_
