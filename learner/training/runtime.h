#ifndef FLOTILLA_LEARNER_TRAINING_RUNTIME_H_
#define FLOTILLA_LEARNER_TRAINING_RUNTIME_H_

#include "flotilla/v1/config.pb.h"

namespace flotilla {

// What a learner takes of its host: memory and threads, set by plan.

// Makes freed memory stay with this process, which asks for the same sizes in
// each update. Left alone, the allocator gives blocks of more than a few MB
// back to the kernel and takes them again, page by page (100,000 page faults
// and a tenth of the time of a Breakout update), and the process's size
// wanders. Call it before anything large is allocated.
void KeepMemory();

// Torch's threads: runtime.torch_threads, or cores / learners on this host.
void SetThreads(const v1::RunConfig& config, int local_world_size);

// Threads that step rows in each env worker: env.threads, or the worker's share
// of the cores.
int EnvThreads(const v1::EnvConfig& config, int local_world_size);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_RUNTIME_H_
