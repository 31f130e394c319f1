#ifndef FLOTILLA_SERVICES_BASE_LIFELINE_H_
#define FLOTILLA_SERVICES_BASE_LIFELINE_H_

namespace flotilla {

// The name of the variable that carries the lifeline's descriptor.
inline constexpr char kLifelineVariable[] = "FLOTILLA_LIFELINE_FD";

// The child's half of "a child cannot outlive its parent", whatever ends the
// parent:
//
//   parent [write end] ------ pipe ------> [read end] child
//
// Nobody ever writes. When the parent is gone, kill -9 included, the kernel
// closes the only write end, and a thread here that blocks on the read end
// kills this process: with SIGKILL to the whole process group if it leads one
// (Subprocess makes it so), else with _exit(137). Our own children hold
// lifelines to us, so they go next.
//
// Call it first in main(), before any thread starts: it clears the variable, so
// that no grandchild mistakes the pipe for its own. Does nothing when the
// variable is not set or does not name a pipe.
void StartLifelineWatch();

// For a child whose parent decides when it is no longer needed. Batch systems
// signal every process of a job, and learners need their coordinator and
// environments until they have saved. From here on SIGUSR1 and SIGUSR2 are
// ignored, and so, if a parent holds our lifeline, are SIGHUP and a SIGTERM that
// others sent. Call it once SIGTERM's handler is installed.
void ObeyParentOnly();

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_LIFELINE_H_
