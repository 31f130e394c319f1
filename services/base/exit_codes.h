#ifndef FLOTILLA_SERVICES_BASE_EXIT_CODES_H_
#define FLOTILLA_SERVICES_BASE_EXIT_CODES_H_

#include <csignal>

namespace flotilla {

// How our programs end: what scripts rely on, and what a launcher makes of its
// learners' ends.
enum ExitCode {
  kExitDone = 0,    // solved, completed or stopped
  kExitFailed = 1,  // of a learner, as any other number or signal: replaced
  kExitUsage = 2,   // wrong command line or configuration: no use in replacing
  kExitHopeless = 3,      // learners only: would fail the same way again
  kExitPreempted = 75,    // any other stop signal; saved
  kExitInterrupted = 130  // SIGINT; saved
};

// Of a process that was told to stop, by which signal.
inline ExitCode ExitCodeOf(int signal) {
  return signal == SIGINT ? kExitInterrupted : kExitPreempted;
}

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_EXIT_CODES_H_
