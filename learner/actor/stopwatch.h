#ifndef FLOTILLA_LEARNER_ACTOR_STOPWATCH_H_
#define FLOTILLA_LEARNER_ACTOR_STOPWATCH_H_

#include <chrono>

namespace flotilla {

// Adds the seconds of its life to `total`.
class Stopwatch {
 public:
  explicit Stopwatch(double* total) : total_(total) {}
  ~Stopwatch() {
    *total_ += std::chrono::duration<double>(Clock::now() - begin_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double* const total_;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ACTOR_STOPWATCH_H_
