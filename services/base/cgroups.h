#ifndef FLOTILLA_SERVICES_BASE_CGROUPS_H_
#define FLOTILLA_SERVICES_BASE_CGROUPS_H_

#include <string>
#include <vector>

namespace flotilla {

// The folders of the cgroups around this process that have `controller` ("memory",
// "cpu"): its own, and those that it is in. In a container, where its own is mounted
// as the root, that one is among them. Files in them may be absent. `root` is put
// before every path, for tests.
struct CgroupFolders {
  std::vector<std::string> v1, v2;
};
CgroupFolders CgroupsAround(const std::string& controller,
                            const std::string& root);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_CGROUPS_H_
