#ifndef FLOTILLA_LEARNER_TRAINING_RUNTIME_H_
#define FLOTILLA_LEARNER_TRAINING_RUNTIME_H_

#include "absl/time/time.h"
#include "flotilla/v1/config.pb.h"
#include "services/env/spaces.h"

namespace flotilla {

// What a learner takes of its host: memory and threads, set by plan.

// Makes freed memory stay with this process, which asks for the same sizes in
// each update. Left alone, the allocator gives blocks of more than a few MB
// back to the kernel and takes them again, page by page (100,000 page faults
// and a tenth of the time of a Breakout update), and the process's size
// wanders. And asks for huge pages for tensors of 2 MB and more, weights among them,
// which a decision reads from end to end (a few percent of Breakout's time);
// THP_MEM_ALLOC_ENABLE=0 in the environment does without. Call it before the first
// thread and anything large.
void KeepMemory();

// Torch's threads: runtime.torch_threads, or else its share of the cores,
// for a network that is worth sharing among them: one that sees images, has a layer
// of 512 or more, or is a user's own. Others get 1: their steps are so short that
// threads mostly wait for one another, and where a core is busy with something else
// all of them do (38 steps/s instead of 1,245 of Taxi beside a compiler).
int TorchThreads(const v1::RunConfig& config, const Spaces& spaces,
                 int local_world_size);

// Threads that step rows in each env worker: env.threads, or the worker's share
// of the cores.
int EnvThreads(const v1::EnvConfig& config, int local_world_size);

// How Torch computes on a GPU. Float32 matrices: in TF32, if that is the precision;
// bfloat16 is the networks' own affair (Network::set_bf16). Convolutions: by the
// algorithm that is measured to be fastest for each shape, unless `deterministic`.
void SetArithmetic(const v1::RuntimeConfig& config);

// How long a learner and its env workers poll the rings between them before they
// sleep: only where each process of this host's learners has a core.
absl::Duration RingSpin(const v1::EnvConfig& config, int local_world_size);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_RUNTIME_H_
