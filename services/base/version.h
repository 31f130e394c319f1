#ifndef FLOTILLA_SERVICES_BASE_VERSION_H_
#define FLOTILLA_SERVICES_BASE_VERSION_H_

#include <string>

namespace flotilla {

// The version of this build, from the project() line of CMakeLists.txt. All
// members of a run have the same one.
std::string Version();

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_VERSION_H_
