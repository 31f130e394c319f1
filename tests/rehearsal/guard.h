#ifndef FLOTILLA_TESTS_REHEARSAL_GUARD_H_
#define FLOTILLA_TESTS_REHEARSAL_GUARD_H_

namespace flotilla::rehearsal {

// Gives Torch the device's streams, events and waits: what c10::DeviceGuard,
// c10::Event and c10::impl::VirtualGuardImpl ask. Once a process.
void RegisterGuard();

}  // namespace flotilla::rehearsal

#endif  // FLOTILLA_TESTS_REHEARSAL_GUARD_H_
