#include "services/base/user_folder.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

// "" where it is not set.
std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string Home() {
  if (const std::string home = Variable("HOME"); !home.empty()) return home;
  const passwd* user = getpwuid(getuid());
  return user != nullptr ? user->pw_dir : "";
}

}  // namespace

std::string UserFolder() {
  const std::string data = Variable("XDG_DATA_HOME");
  return absl::StrCat(data.empty() ? Home() + "/.local/share" : data,
                      "/flotilla");
}

}  // namespace flotilla
