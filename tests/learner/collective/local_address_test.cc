#include "learner/collective/local_address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "learner/collective/rendezvous.h"
#include "tests/learner/collective/ranks.h"

namespace flotilla {
namespace {

TEST(LocalAddressTest, OneHostUsesLoopback) {
  const auto address = LocalAddressFor(MakeAssignment(0, 3));
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(*address, "127.0.0.1");
}

TEST(LocalAddressTest, TheRouteToLoopbackLeavesFromLoopback) {
  const auto address = LocalAddressTowards("127.0.0.1");
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(*address, "127.0.0.1");
}

TEST(LocalAddressTest, AnUnknownHostIsNamed) {
  const auto address = LocalAddressTowards("no-such-host.invalid");
  EXPECT_FALSE(address.ok());
  EXPECT_NE(address.status().message().find("no-such-host.invalid"),
            absl::string_view::npos)
      << address.status();
}

// Every host takes itself for 127.0.0.1: nobody could connect to that.
TEST(LocalAddressTest, LoopbackIsNoAddressBetweenHosts) {
  v1::Assignment assignment = MakeAssignment(0, 2);
  assignment.mutable_learner(1)->set_host("localhost");
  const auto address = LocalAddressFor(assignment);
  EXPECT_TRUE(absl::IsFailedPrecondition(address.status())) << address.status();
  const std::string message(address.status().message());
  EXPECT_NE(message.find("localhost"), std::string::npos) << message;
  EXPECT_NE(message.find("GLOO_SOCKET_IFNAME"), std::string::npos) << message;
}

TEST(LocalAddressTest, AMembersIpIsTriedWhereItsNameIsUnknown) {
  v1::Assignment assignment = MakeAssignment(0, 2);
  assignment.mutable_learner(1)->set_host("no-such-host.invalid");
  assignment.mutable_learner(1)->set_ip("127.0.0.1");
  const auto address = LocalAddressFor(assignment);
  const std::string message(address.status().message());
  for (const char* tried : {"cannot resolve host \"no-such-host.invalid\"",
                            "host \"127.0.0.1\" resolves to loopback"}) {
    EXPECT_NE(message.find(tried), std::string::npos) << message;
  }
}

// Two machines that are called alike, of which nobody can tell which is meant.
TEST(LocalAddressTest, HostsOfOneNameAreToldApartByTheirNetwork) {
  v1::Assignment assignment = MakeAssignment(0, 2);
  EXPECT_TRUE(OnOneHost(assignment));
  assignment.mutable_learner(0)->set_network("boot-1 net:[1]");
  EXPECT_TRUE(OnOneHost(assignment));  // the other is of before
  assignment.mutable_learner(1)->set_network("boot-2 net:[1]");
  EXPECT_FALSE(OnOneHost(assignment));
  EXPECT_TRUE(absl::IsFailedPrecondition(LocalAddressFor(assignment).status()));
  // What leads to the coordinator, where nothing else is known.
  assignment.mutable_learner(0)->set_ip("192.0.2.7");
  const auto address = LocalAddressFor(assignment);
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(*address, "192.0.2.7");
}

TEST(LocalAddressTest, TheWayToACoordinatorIsOfAnyKind) {
  for (const char* address :
       {"127.0.0.1:29400", "localhost:29400", "[::1]:29400", "unix:/run/c",
        "unix-abstract:c", "no-such-host.invalid:29400", "nonsense", ""}) {
    EXPECT_EQ(IpTowards(address), "") << address;
  }
  EXPECT_FALSE(NetworkOfThisProcess().empty());
  EXPECT_EQ(NetworkOfThisProcess(), NetworkOfThisProcess());
}

TEST(LocalAddressTest, AnAddressHasAnInterface) {
  EXPECT_EQ(InterfaceOf("127.0.0.1"), "lo");
  EXPECT_EQ(InterfaceOf("192.0.2.1"), "");  // nobody's
}

TEST(LocalAddressTest, OneHostAndSetVariablesAreLeftAlone) {
  NameSocketInterface(MakeAssignment(0, 2));
  EXPECT_EQ(std::getenv("NCCL_SOCKET_IFNAME"), nullptr);
  EXPECT_EQ(std::getenv("GLOO_SOCKET_IFNAME"), nullptr);
}

// Gives this process a network of its own, whose only interface has the address
// 10.9.8.1 beside loopback's.
bool EnterANetworkOfItsOwn() {
  if (::unshare(CLONE_NEWNET) != 0) return false;
  const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (::ioctl(fd, SIOCSIFFLAGS, &request) != 0) return false;
  std::strcpy(request.ifr_name, "lo:1");
  auto* address = reinterpret_cast<sockaddr_in*>(&request.ifr_addr);
  *address = {
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
  ::inet_pton(AF_INET, "10.9.8.1", &address->sin_addr);
  const bool added = ::ioctl(fd, SIOCSIFADDR, &request) == 0;
  ::close(fd);
  return added;
}

// What is unset is named from the route; what a person has set stays.
TEST(LocalAddressTest, BetweenHostsTheInterfaceOfTheRouteIsNamed) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!EnterANetworkOfItsOwn()) ::_exit(77);
    v1::Assignment assignment = MakeAssignment(0, 2);
    assignment.mutable_learner(1)->set_host("host-b");
    assignment.mutable_learner(1)->set_ip("10.9.8.2");
    ::setenv("GLOO_SOCKET_IFNAME", "mine", 1);
    ::unsetenv("NCCL_SOCKET_IFNAME");
    NameSocketInterface(assignment);
    const char* nccl = std::getenv("NCCL_SOCKET_IFNAME");
    const bool good = nccl != nullptr && std::string(nccl) == "=lo:1" &&
                      std::string(std::getenv("GLOO_SOCKET_IFNAME")) == "mine";
    ::unsetenv("GLOO_SOCKET_IFNAME");
    NameSocketInterface(assignment);
    const char* gloo = std::getenv("GLOO_SOCKET_IFNAME");
    ::_exit(good && gloo != nullptr && std::string(gloo) == "lo:1" ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no network of one's own here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace flotilla
