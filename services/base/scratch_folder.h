#ifndef FLOTILLA_SERVICES_BASE_SCRATCH_FOLDER_H_
#define FLOTILLA_SERVICES_BASE_SCRATCH_FOLDER_H_

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace flotilla {

// A folder that only this user can enter, in TMPDIR (or /tmp), for as long as
// this object lives. Short enough for unix sockets.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::error_code ignored;
    std::string pattern =
        std::filesystem::temp_directory_path(ignored) / "flotilla-XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  // "" if it could not be made.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_SCRATCH_FOLDER_H_
