#include "services/base/host_name.h"

#include <unistd.h>

namespace flotilla {

std::string HostName() {
  char name[256] = "localhost";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace flotilla
