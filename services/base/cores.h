#ifndef FLOTILLA_SERVICES_BASE_CORES_H_
#define FLOTILLA_SERVICES_BASE_CORES_H_

#include <optional>
#include <string>
#include <vector>

namespace flotilla {

// Cores that the calling thread may run on, as taskset, containers and Slurm leave
// them to it: ascending, at least one.
std::vector<int> UsableCores();

// How many cores' time the cgroups around this process allow it (docker --cpus,
// Kubernetes' limits.cpu), v2 and v1; nullopt: as much as there is. `root` is put
// before every path, for tests.
std::optional<double> CpuQuota(const std::string& root = "");

// How many of `cores` one of `sharers` alike can keep busy: its part of them, and of
// a quota the part that has begun; at least 1.
int CoresToFill(int cores, int sharers, std::optional<double> quota);

// The same of UsableCores() within this process' CpuQuota().
int CoresToFill(int sharers = 1);

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
