#ifndef FLOTILLA_TESTS_REHEARSAL_HOOKS_H_
#define FLOTILLA_TESTS_REHEARSAL_HOOKS_H_

namespace flotilla::rehearsal {

// Gives Torch the device's generators and pinned memory, and makes it the
// process's accelerator. Once a process.
void RegisterHooks();

}  // namespace flotilla::rehearsal

#endif  // FLOTILLA_TESTS_REHEARSAL_HOOKS_H_
