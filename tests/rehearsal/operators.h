#ifndef FLOTILLA_TESTS_REHEARSAL_OPERATORS_H_
#define FLOTILLA_TESTS_REHEARSAL_OPERATORS_H_

namespace flotilla::rehearsal {

// Gives Torch the device's operators: the fallback for all, and code of their
// own for those that make memory, move it, or read it. Once a process.
void RegisterOperators();

}  // namespace flotilla::rehearsal

#endif  // FLOTILLA_TESTS_REHEARSAL_OPERATORS_H_
