#include "services/base/host_name.h"

#include <unistd.h>

namespace flotilla {

std::string HostName() {
  char name[256] = "localhost";
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string HostAndPort(const std::string& host, const std::string& port) {
  const bool bare = host.find(':') != host.npos && host.front() != '[';
  return (bare ? "[" + host + "]" : host) + ":" + port;
}

}  // namespace flotilla
