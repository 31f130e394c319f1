#ifndef FLOTILLA_SERVICES_BASE_CORES_H_
#define FLOTILLA_SERVICES_BASE_CORES_H_

#include <vector>

namespace flotilla {

// Cores that the calling thread may run on, as taskset, containers and Slurm leave
// them to it: ascending, at least one.
std::vector<int> UsableCores();

// Confines the calling thread, and all threads and processes that it starts from
// now on, to `cores`. Call it before there are others. False if the kernel
// refuses: nothing has changed then.
bool PinTo(const std::vector<int>& cores);

// Undoes PinTo for the calling thread and what it starts. No-op without one.
void Unpin();

// Whether PinTo has confined this process.
bool IsPinned();

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_CORES_H_
