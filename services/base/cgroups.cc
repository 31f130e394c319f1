#include "services/base/cgroups.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace flotilla {
namespace {

void Append(const std::string& mount, std::string path,
            std::vector<std::string>* folders) {
  folders->push_back(mount);
  while (path.size() > 1) {
    folders->push_back(mount + path);
    path.resize(path.rfind('/'));
  }
}

}  // namespace

CgroupFolders CgroupsAround(const std::string& controller,
                            const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  CgroupFolders folders;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // hierarchy:controllers:path; v2 has hierarchy 0 and no controllers.
    const std::vector<std::string> fields =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3 || fields[2].empty() || fields[2][0] != '/') {
      continue;
    }
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (fields[0] == "0") {
      Append(mount, fields[2], &folders.v2);
    } else if (std::ranges::count(controllers, controller) > 0) {
      Append(absl::StrCat(mount, "/", controller), fields[2], &folders.v1);
    }
  }
  return folders;
}

}  // namespace flotilla
