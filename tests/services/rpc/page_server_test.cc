#include "services/rpc/page_server.h"

#include <sys/socket.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/owned_fd.h"
#include "tests/services/rpc/page_client.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string Ask(const PageServer& server, const std::string& request) {
  const OwnedFd fd = Connect(server);
  Say(fd, request);
  return Hear(fd);
}

TEST(PageServerTest, TheOnePageThereIs) {
  ASSERT_OK_AND_ASSIGN(const auto server, PageServer::Start(PageOptions()));
  const std::string answer = Ask(*server, kGet);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 9\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\nthe page\n"));
  const std::string head =
      Ask(*server, "HEAD /metrics?x=1 HTTP/1.0\r\nhost: [::1]:29\r\n\r\n");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(head, HasSubstr("Content-Length: 9"));
  EXPECT_THAT(head, Not(HasSubstr("the page")));
}

TEST(PageServerTest, WhatIsAskedWrongly) {
  ASSERT_OK_AND_ASSIGN(const auto server, PageServer::Start(PageOptions()));
  const std::string host = "Host: 127.0.0.1:9\r\n\r\n";
  const std::pair<std::string, const char*> cases[] = {
      {"GET /other/of/it HTTP/1.1\r\n" + host, "HTTP/1.1 404"},
      {"POST /metrics HTTP/1.1\r\n" + host, "HTTP/1.1 405"},
      {"GET /metrics HTTP/1.1 x\r\n" + host, "HTTP/1.1 400"},
      {"what is this? not what one asks\r\n\r\n", "HTTP/1.1 400"},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 505"},
      // A page of the web, through a name of its own that stands for loopback.
      {"GET /metrics HTTP/1.1\r\nHost: evil.example:9\r\n\r\n", "HTTP/1.1 421"},
      {"GET /metrics HTTP/1.1\r\nHost: unix:9\r\n\r\n", "HTTP/1.1 421"},
      {"GET /metrics HTTP/1.1\r\nNo: host here\r\n\r\n", "HTTP/1.1 421"},
      {"GET /metrics HTTP/1.1\r\nX: " + std::string(9000, 'x'),
       "HTTP/1.1 431"}};
  for (const auto& [request, answer] : cases) {
    EXPECT_THAT(Ask(*server, request), StartsWith(answer)) << request;
  }
  EXPECT_THAT(Ask(*server, kGet), HasSubstr("the page"));
}

TEST(PageServerTest, ATokenIsAskedFor) {
  PageServerOptions options = PageOptions();
  options.token = "abc";
  ASSERT_OK_AND_ASSIGN(const auto server, PageServer::Start(options));
  const auto with = [&](const std::string& header) {
    return Ask(*server,
               absl::StrCat("GET /metrics HTTP/1.1\r\nHost: anybody\r\n",
                            header, "\r\n"));
  };
  EXPECT_THAT(with(""), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(with(""), HasSubstr("WWW-Authenticate: Bearer"));
  EXPECT_THAT(with("Authorization: Bearer abcd\r\n"),
              StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(with("Authorization: Basic abc\r\n"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(with("Authorization: Bearer abc\r\nAuthorization: Bearer x\r\n"),
              StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(with("authorization: bearer abc\r\n"), HasSubstr("the page"));
}

// Said in parts, also with more behind it.
TEST(PageServerTest, ARequestInPieces) {
  ASSERT_OK_AND_ASSIGN(const auto server, PageServer::Start(PageOptions()));
  const OwnedFd fd = Connect(*server);
  const std::string request = kGet;
  Say(fd, request.substr(0, 30));
  Say(fd, request.substr(30) + "and more that nobody reads");
  EXPECT_THAT(Hear(fd), HasSubstr("the page"));
}

TEST(PageServerTest, WhoIsSlowIsDropped) {
  PageServerOptions options = PageOptions();
  options.read_within = absl::Seconds(2);
  options.write_within = absl::Milliseconds(100);
  std::promise<void> asked;
  options.page = [&] {
    asked.set_value();
    // More than the kernel keeps for a reader who does not read.
    return std::string(64 << 20, 'x');
  };
  ASSERT_OK_AND_ASSIGN(const auto server, PageServer::Start(options));
  const OwnedFd half = Connect(*server);
  Say(half, "GET /metrics HTTP/1.1\r\nHost: localh");
  const OwnedFd silent = Connect(*server);
  EXPECT_EQ(Hear(half), "");
  EXPECT_EQ(Hear(silent), "");
  const OwnedFd slow = Connect(*server);
  Say(slow, kGet);
  ASSERT_EQ(asked.get_future().wait_for(std::chrono::seconds(20)),
            std::future_status::ready);
  // Its answer is cut: nobody waits for it to be read. Who comes later, once it
  // is being answered, is dropped later.
  const OwnedFd later = Connect(*server);
  Say(later, "GET /metrics HTTP/1.1\r\nHost: localh");
  EXPECT_EQ(Hear(later), "");
  EXPECT_LT(Hear(slow).size(), size_t{64} << 20);
}

TEST(PageServerTest, AFloodLeavesRoomForTheNext) {
  PageServerOptions options = PageOptions();
  options.max_connections = 8;
  options.read_within = absl::Milliseconds(500);
  ASSERT_OK_AND_ASSIGN(const auto server, PageServer::Start(options));
  std::vector<OwnedFd> flood;
  for (int i = 0; i < 100; ++i) {
    flood.push_back(Connect(*server));
    send(flood.back().get(), kGet, 30, MSG_NOSIGNAL);
  }
  for (const OwnedFd& fd : flood) EXPECT_EQ(Hear(fd), "");
  // A host's connections are counted again every 100 ms at most.
  std::string answer;
  for (int i = 0; i < 10 && answer.empty(); ++i) {
    if (i > 0) absl::SleepFor(absl::Milliseconds(100));
    answer = Ask(*server, kGet);
  }
  EXPECT_THAT(answer, HasSubstr("the page"));
}

TEST(PageServerTest, ItEndsWithWhoIsConnected) {
  ASSERT_OK_AND_ASSIGN(auto server, PageServer::Start(PageOptions()));
  const OwnedFd half = Connect(*server);
  Say(half, "GET /metrics HTTP/1.1\r\nHost: localh");
  EXPECT_THAT(Ask(*server, kGet), HasSubstr("the page"));  // half is in by now
  server.reset();
  EXPECT_EQ(Hear(half), "");
}

// Also where it makes a page just then, for somebody who has gone.
TEST(PageServerTest, ItEndsWhileItMakesAPage) {
  PageServerOptions options = PageOptions();
  std::promise<void> asked;
  std::string address;
  options.page = [&] {
    asked.set_value();
    // Until the server's end has begun: nobody listens any more.
    while (IsListening(address)) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    return std::string("the page\n");
  };
  ASSERT_OK_AND_ASSIGN(auto server, PageServer::Start(options));
  address = server->address();
  {
    const OwnedFd fd = Connect(*server);
    Say(fd, kGet);
    asked.get_future().wait();
    const linger reset = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  }
  server.reset();  // returns
}

}  // namespace
}  // namespace flotilla
