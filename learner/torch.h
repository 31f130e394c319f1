#ifndef FLOTILLA_LEARNER_TORCH_H_
#define FLOTILLA_LEARNER_TORCH_H_

// The only file that includes <torch/torch.h>, and the learner's precompiled
// header.
//
// Torch defines LOG, CHECK, DCHECK and VLOG over glog's without a warning, and
// the last one included wins. Here glog always wins.

#include <torch/torch.h>

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
