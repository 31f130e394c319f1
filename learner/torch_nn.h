#ifndef FLOTILLA_LEARNER_TORCH_NN_H_
#define FLOTILLA_LEARNER_TORCH_NN_H_

// learner/torch.h, and all else that <torch/torch.h> has: torch::nn, torch::optim and
// so on. The only file that includes it.

#include "learner/torch.h"

// After it: what that has set right stays so.
#include <torch/torch.h>

#endif  // FLOTILLA_LEARNER_TORCH_NN_H_
