#ifndef FLOTILLA_TESTS_TESTING_TINY_DISK_H_
#define FLOTILLA_TESTS_TESTING_TINY_DISK_H_

#include <sys/mount.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace flotilla {

// A file system of 256 kB in a folder, for a scope.
class TinyDisk {
 public:
  explicit TinyDisk(const std::string& path)
      : path_(path),
        mounted_(::mount("flotilla", path.c_str(), "tmpfs", 0, "size=256k") ==
                 0) {}
  ~TinyDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }

  // Else there is none: it takes root.
  bool mounted() const { return mounted_; }

  // Leaves no page.
  void Fill() {
    std::FILE* file = std::fopen(filler().c_str(), "wb");
    std::setbuf(file, nullptr);
    while (std::fputc(0, file) != EOF) {
    }
    std::fclose(file);
  }

  // What Fill took.
  void Free() { std::filesystem::remove(filler()); }

 private:
  std::string filler() const { return path_ + "/filler"; }

  const std::string path_;
  const bool mounted_;
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_TESTING_TINY_DISK_H_
