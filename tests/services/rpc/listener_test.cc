#include "services/rpc/listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Reserved for documentation: no host's.
constexpr char kNobodys[] = "192.0.2.1";
constexpr char kNobodysV6[] = "2001:db8::1";

// Of a host called pod-0, where `name` means `addresses`.
HostNames OnPod0(const std::string& name, std::vector<std::string> addresses) {
  HostNames names;
  names.own = "pod-0";
  names.known[name] = std::move(addresses);
  return names;
}

// Whether what comes to any address of this host comes to it.
bool IsEverywhere(const Listener& listener) {
  if (listener.sockets().size() != 1) return false;
  sockaddr_storage name = {};
  socklen_t size = sizeof(name);
  EXPECT_EQ(getsockname(listener.sockets()[0].get(),
                        reinterpret_cast<sockaddr*>(&name), &size),
            0);
  if (name.ss_family == AF_INET6) {
    return IN6_IS_ADDR_UNSPECIFIED(
        &reinterpret_cast<const sockaddr_in6*>(&name)->sin6_addr);
  }
  return reinterpret_cast<const sockaddr_in*>(&name)->sin_addr.s_addr ==
         INADDR_ANY;
}

// As a pod starts: its name gets into DNS after it.
TEST(ListenerTest, OwnNameThatMeansNothingYetIsEveryInterface) {
  for (const std::string host : {"pod-0", "pod-0.job", "pod-0.job.default"}) {
    ASSERT_OK_AND_ASSIGN(const Listener listener,
                         Listener::Bind(host + ":0", OnPod0(host, {})));
    EXPECT_THAT(listener.address(), StartsWith(host + ":"));
    EXPECT_NE(listener.address(), host + ":0");
    EXPECT_TRUE(IsEverywhere(listener)) << host;
  }
}

// As a pod starts after another of its name, whose address is remembered.
TEST(ListenerTest, OwnNameThatMeansAnothersAddressIsEveryInterface) {
  ASSERT_OK_AND_ASSIGN(
      const Listener listener,
      Listener::Bind("pod-0.job:0",
                     OnPod0("pod-0.job", {kNobodys, kNobodysV6})));
  EXPECT_THAT(listener.address(), StartsWith("pod-0.job:"));
  EXPECT_TRUE(IsEverywhere(listener));
}

TEST(ListenerTest, OwnNameForLoopbackIsEveryInterface) {
  ASSERT_OK_AND_ASSIGN(
      const Listener listener,
      Listener::Bind("pod-0:0", OnPod0("pod-0", {"127.0.1.1"})));
  EXPECT_TRUE(IsEverywhere(listener));
}

TEST(ListenerTest, OwnNameIsWhatItMeansOfThisHost) {
  ASSERT_OK_AND_ASSIGN(
      const Listener listener,
      Listener::Bind("pod-0.job:0",
                     OnPod0("pod-0.job", {kNobodys, "127.0.0.1"})));
  EXPECT_THAT(listener.sockets(), SizeIs(1));
  EXPECT_FALSE(IsEverywhere(listener));
}

TEST(ListenerTest, OwnNameThatMeansNothingYetGetsNoPortThatIsTaken) {
  const HostNames names = OnPod0("pod-0.job", {});
  ASSERT_OK_AND_ASSIGN(const Listener listener,
                       Listener::Bind("pod-0.job:0", names));
  EXPECT_THAT(Listener::Bind(listener.address(), names),
              StatusIs(StatusCode::kUnavailable,
                       AllOf(HasSubstr(listener.address()),
                             HasSubstr("something listens there already"))));
}

TEST(ListenerTest, NameOfAnotherHostIsRefused) {
  for (const std::string host : {"pod-1.job", "pod-01.job", "job.pod-0"}) {
    EXPECT_THAT(Listener::Bind(host + ":0", OnPod0(host, {})),
                StatusIs(StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(host), HasSubstr("no such host"))));
    EXPECT_THAT(Listener::Bind(host + ":0", OnPod0(host, {kNobodys})),
                StatusIs(StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(host), HasSubstr("no such address"))));
  }
}

}  // namespace
}  // namespace flotilla
