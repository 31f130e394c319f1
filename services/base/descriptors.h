#ifndef FLOTILLA_SERVICES_BASE_DESCRIPTORS_H_
#define FLOTILLA_SERVICES_BASE_DESCRIPTORS_H_

namespace flotilla {

// How many descriptors this process may have open at most: what `ulimit -n`
// says, and a million where that is unlimited.
int DescriptorLimit();

// Raises that to what the system allows without privileges. A server calls it
// at its start: each connection takes a descriptor.
void RaiseDescriptorLimit();

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_DESCRIPTORS_H_
