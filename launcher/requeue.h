#ifndef FLOTILLA_LAUNCHER_REQUEUE_H_
#define FLOTILLA_LAUNCHER_REQUEUE_H_

#include "services/base/shutdown.h"

namespace flotilla {

// Puts the Slurm job that this launcher is of back into the queue, if SIGUSR1, Slurm's
// signal before a time limit, was the first that came, and says so. For the launcher
// that hosts the coordinator, once all is saved.
//
// Blocks: for some seconds until a signal has come, as each node's comes by itself, and
// another's may have ended the run; then for Slurm's answer.
void RequeueIfWarned(const ShutdownSignals& signals);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_REQUEUE_H_
