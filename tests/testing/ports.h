#ifndef FLOTILLA_TESTS_TESTING_PORTS_H_
#define FLOTILLA_TESTS_TESTING_PORTS_H_

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace flotilla {

// `port`, or one that the kernel chooses for 0; 0 if it cannot be had.
inline int FreePort(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool bound =
      bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(fd);
  return bound ? ntohs(address.sin_port) : 0;
}

// Of a port below those that the kernel gives to whoever names none, so that it
// stays free until a server listens there, and between one and the next.
inline std::string AddressToListenAt() {
  constexpr int kFirst = 10000;
  int end = 32768;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> end;
  const int count = end - kFirst;
  for (int i = 0; i < count; ++i) {
    // Other tests begin elsewhere.
    const int port = FreePort(kFirst + (getpid() % count * 97 + i) % count);
    if (port != 0) return absl::StrCat("127.0.0.1:", port);
  }
  return absl::StrCat("127.0.0.1:", FreePort(0));  // the kernel gives all out
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_TESTING_PORTS_H_
