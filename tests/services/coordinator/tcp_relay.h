#ifndef FLOTILLA_TESTS_SERVICES_COORDINATOR_TCP_RELAY_H_
#define FLOTILLA_TESTS_SERVICES_COORDINATOR_TCP_RELAY_H_

#include <arpa/inet.h>
#include <glog/logging.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace flotilla {

// A wire between a client and a server on 127.0.0.1, which a test can cut
// without either end being told.
class TcpRelay {
 public:
  explicit TcpRelay(const std::string& target) {
    CHECK(
        absl::SimpleAtoi(target.substr(target.rfind(':') + 1), &target_port_));
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in name = Loopback(0);
    CHECK_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&name), sizeof(name)),
             0);
    CHECK_EQ(listen(listener_, 64), 0);
    socklen_t size = sizeof(name);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&name), &size);
    address_ = absl::StrCat("127.0.0.1:", ntohs(name.sin_port));
    thread_ = std::thread([this] { Run(); });
  }

  ~TcpRelay() {
    quit_ = true;
    thread_.join();
    for (const auto& [a, b] : pairs_) {
      close(a);
      close(b);
    }
    close(listener_);
  }

  const std::string& address() const { return address_; }

  // The connections of now carry nothing any more, but stay open. New ones
  // work.
  void FreezeConnections() { freeze_ = true; }

  // Nothing gets through, old or new, until Mend.
  void Cut() { cut_ = true; }
  void Mend() { cut_ = false; }

  int connections() const { return connections_; }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    name.sin_port = htons(static_cast<uint16_t>(port));
    return name;
  }

  void Run() {
    while (!quit_) {
      if (freeze_.exchange(false)) {
        for (const auto& pair : pairs_) frozen_.insert(pair);
      }
      std::vector<pollfd> fds = {{listener_, POLLIN, 0}};
      for (const auto& pair : pairs_) {
        if (cut_ || frozen_.count(pair) > 0) continue;
        fds.push_back({pair.first, POLLIN, 0});
        fds.push_back({pair.second, POLLIN, 0});
      }
      poll(fds.data(), fds.size(), 5);
      if (cut_) continue;
      if (fds[0].revents != 0) Accept();
      for (size_t i = 1; i + 1 < fds.size(); i += 2) {
        const bool alive =
            (fds[i].revents == 0 || Forward(fds[i].fd, fds[i + 1].fd)) &&
            (fds[i + 1].revents == 0 || Forward(fds[i + 1].fd, fds[i].fd));
        if (!alive) Drop({fds[i].fd, fds[i + 1].fd});
      }
    }
  }

  void Accept() {
    const int near = accept(listener_, nullptr, nullptr);
    const int far = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in name = Loopback(target_port_);
    if (connect(far, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) !=
        0) {
      close(near);
      close(far);
      return;
    }
    pairs_.insert({near, far});
    ++connections_;
  }

  static bool Forward(int from, int to) {
    char buffer[65536];
    const ssize_t n = recv(from, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
    return send(to, buffer, n, MSG_NOSIGNAL) == n;
  }

  void Drop(const std::pair<int, int>& pair) {
    close(pair.first);
    close(pair.second);
    pairs_.erase(pair);
  }

  int target_port_ = 0;
  int listener_ = -1;
  std::string address_;
  std::atomic<bool> quit_ = false;
  std::atomic<bool> freeze_ = false;
  std::atomic<bool> cut_ = false;
  std::atomic<int> connections_ = 0;
  std::set<std::pair<int, int>> pairs_;   // the thread's
  std::set<std::pair<int, int>> frozen_;  // the thread's
  std::thread thread_;
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_SERVICES_COORDINATOR_TCP_RELAY_H_
