#ifndef FLOTILLA_LEARNER_LEARNER_MAIN_H_
#define FLOTILLA_LEARNER_LEARNER_MAIN_H_

#include "learner/collective/rank_device.h"

namespace flotilla {

// All of flotilla-learner: one rank of training, or the player behind
// `flotilla evaluate`, on the device that `choose_device` says. Returns the
// process's exit code.
int LearnerMain(int argc, char** argv, DeviceChooser choose_device);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_LEARNER_MAIN_H_
