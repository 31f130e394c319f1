#ifndef FLOTILLA_TESTS_SERVICES_RPC_PAGE_CLIENT_H_
#define FLOTILLA_TESTS_SERVICES_RPC_PAGE_CLIENT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "services/base/owned_fd.h"
#include "services/rpc/page_server.h"

namespace flotilla {

inline constexpr char kGet[] =
    "GET /metrics HTTP/1.1\r\nHost: localhost:1\r\n\r\n";

inline PageServerOptions PageOptions() {
  PageServerOptions options;
  options.address = "127.0.0.1:0";
  options.path = "/metrics";
  options.content_type = "text/plain";
  options.page = [] { return std::string("the page\n"); };
  return options;
}

// A connection to "127.0.0.1:port"; false if nobody listens there.
inline bool ConnectTo(const std::string& address, OwnedFd* fd) {
  *fd = OwnedFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  to.sin_port = htons(static_cast<uint16_t>(port));
  return connect(fd->get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
}

inline bool IsListening(const std::string& address) {
  OwnedFd fd;
  return ConnectTo(address, &fd);
}

inline OwnedFd Connect(const PageServer& server) {
  OwnedFd fd;
  EXPECT_TRUE(ConnectTo(server.address(), &fd));
  return fd;
}

inline void Say(const OwnedFd& fd, const std::string& text) {
  EXPECT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

// Until the other end hangs up.
inline std::string Hear(const OwnedFd& fd) {
  std::string all;
  char bytes[65536];
  for (;;) {
    pollfd entry = {.fd = fd.get(), .events = POLLIN, .revents = 0};
    if (poll(&entry, 1, 20'000) != 1) return all + "(silence)";
    const ssize_t n = recv(fd.get(), bytes, sizeof(bytes), 0);
    if (n <= 0) return all;
    all.append(bytes, static_cast<size_t>(n));
  }
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_SERVICES_RPC_PAGE_CLIENT_H_
