#ifndef FLOTILLA_LEARNER_TORCH_H_
#define FLOTILLA_LEARNER_TORCH_H_

// What the learner sees of LibTorch, and its precompiled header: tensors, autograd's
// backward pass and their settings. <torch/torch.h> has modules, data loaders and
// optimizers too, and whatever includes that compiles twice as long, precompiled or
// not: who writes a torch::nn::Module includes learner/torch_nn.h instead.
//
// Torch defines LOG, CHECK, DCHECK and VLOG over glog's without a warning, and
// the last one included wins. Here glog always wins.

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#undef LOG
#undef LOG_IF
#undef DLOG
#undef VLOG
#undef VLOG_IF
#undef VLOG_IS_ON
#undef CHECK
#undef DCHECK
#undef CHECK_EQ
#undef CHECK_NE
#undef CHECK_LE
#undef CHECK_LT
#undef CHECK_GE
#undef CHECK_GT
#undef CHECK_NOTNULL
#undef DCHECK_EQ
#undef DCHECK_NE
#undef DCHECK_LE
#undef DCHECK_LT
#undef DCHECK_GE
#undef DCHECK_GT
#undef DCHECK_NOTNULL

#include <glog/logging.h>  // IWYU pragma: export

#endif  // FLOTILLA_LEARNER_TORCH_H_
