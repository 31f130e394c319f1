#ifndef FLOTILLA_LEARNER_KERNELS_Q_LOSS_H_
#define FLOTILLA_LEARNER_KERNELS_Q_LOSS_H_

#include <cstdint>

namespace flotilla {

// Transitions to learn from. Borrowed.
struct QSamples {
  int64_t rows = 0;                     // N
  const float* observations = nullptr;  // [N, D]
  const int64_t* actions = nullptr;     // [N]
  const float* targets = nullptr;       // [N]  y, what Q(s, a) aims at
  const float* weights = nullptr;       // [N]  of each one's loss
};

struct QSums {
  double loss = 0;  // weighted
  double q = 0;     // Q(s, a)

  QSums& operator+=(const QSums& other) {
    loss += other.loss;
    q += other.q;
    return *this;
  }
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_Q_LOSS_H_
