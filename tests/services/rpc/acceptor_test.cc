#include "services/rpc/acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iterator>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "services/base/mutex.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

constexpr char kWords[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";  // 24 bytes
constexpr AcceptorLimits kLimits = {.descriptors = 10'000,
                                    .silent = 100,
                                    .per_host = 100,
                                    .patience = absl::Minutes(10)};
constexpr int kLongMs = 20'000;

// An acceptor, and what it hands over. After each it waits until it may `go_on`.
class Place {
 public:
  explicit Place(const AcceptorLimits& limits = kLimits,
                 const std::string& address = "127.0.0.1:0",
                 std::counting_semaphore<>* go_on = nullptr) {
    auto listener = Listener::Bind(address);
    EXPECT_OK(listener);
    address_ = listener->address();
    auto acceptor =
        Acceptor::Start(*std::move(listener), limits, [=, this](int fd, int) {
          {
            MutexLock lock(&mu_);
            taken_.emplace_back(fd);
            changed_.notify_all();
          }
          if (go_on != nullptr) go_on->acquire();
        });
    EXPECT_OK(acceptor);
    acceptor_ = *std::move(acceptor);
  }

  // A connection from `host`, which is one of our own, that says nothing yet.
  OwnedFd Connect(const char* host = "127.0.0.1") {
    OwnedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ConnectAs(host, fd.get());
    return fd;
  }

  void ConnectAs(const char* host, int fd) {
    sockaddr_in from = {}, to = {};
    from.sin_family = to.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, host, &from.sin_addr), 1);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&from), sizeof(from)), 0);
    int port = 0;
    EXPECT_TRUE(
        absl::SimpleAtoi(address_.substr(address_.rfind(':') + 1), &port));
    to.sin_port = htons(static_cast<in_port_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  }

  // The next one that is handed over; none after `ms`.
  OwnedFd Take(int ms = kLongMs) {
    MutexLock lock(&mu_);
    while (taken_.empty()) {
      if (!lock.WaitFor(&changed_, absl::Milliseconds(ms))) break;
    }
    if (taken_.empty()) return OwnedFd();
    OwnedFd fd = std::move(taken_.front());
    taken_.pop_front();
    return fd;
  }

  bool TookNone() {
    MutexLock lock(&mu_);
    return taken_.empty();
  }

 private:
  std::string address_;
  Mutex mu_;
  std::condition_variable changed_;
  std::deque<OwnedFd> taken_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Acceptor> acceptor_;
};

void Say(const OwnedFd& fd, const std::string& words) {
  ASSERT_EQ(send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(words.size()));
}

// Whether the other end closes it.
bool IsClosed(const OwnedFd& fd) {
  pollfd entry = {.fd = fd.get(), .events = POLLIN, .revents = 0};
  char byte;
  return poll(&entry, 1, kLongMs) == 1 && recv(fd.get(), &byte, 1, 0) <= 0;
}

bool IsOpen(const OwnedFd& fd) {
  pollfd entry = {.fd = fd.get(), .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) == 0;
}

TEST(AcceptorTest, HandsOverWhoHasSpokenWithAllThatWasSaid) {
  Place place;
  const OwnedFd silent = place.Connect();
  const OwnedFd client = place.Connect();
  Say(client, "PRI * HT");
  const OwnedFd other = place.Connect();
  Say(other, std::string(kWords) + "more");
  OwnedFd taken = place.Take();
  char words[64] = "";
  EXPECT_EQ(recv(taken.get(), words, sizeof(words), MSG_WAITALL | MSG_DONTWAIT),
            28);
  EXPECT_STREQ(words, (std::string(kWords) + "more").c_str());
  EXPECT_TRUE(place.TookNone());
  Say(client, std::string(kWords).substr(8));
  taken = place.Take();
  EXPECT_EQ(recv(taken.get(), words, sizeof(words), MSG_DONTWAIT), 24);
  EXPECT_TRUE(IsOpen(silent));
}

TEST(AcceptorTest, WhoStaysSilentIsClosedAfterTheTimeItHas) {
  AcceptorLimits limits = kLimits;
  limits.patience = absl::Milliseconds(20);
  Place place(limits);
  const OwnedFd silent = place.Connect();
  const OwnedFd stammering = place.Connect();
  Say(stammering, "PRI");
  EXPECT_TRUE(IsClosed(silent));
  EXPECT_TRUE(IsClosed(stammering));
}

TEST(AcceptorTest, TooManySilentOnesCostTheHostThatHasMost) {
  AcceptorLimits limits = kLimits;
  limits.silent = 4;
  Place place(limits);
  const OwnedFd patient = place.Connect("127.0.0.2");
  std::vector<OwnedFd> flood;
  for (int i = 0; i < 50; ++i) flood.push_back(place.Connect("127.0.0.3"));
  for (size_t i = 0; i < flood.size() - 3; ++i) {
    EXPECT_TRUE(IsClosed(flood[i])) << i;
  }
  EXPECT_TRUE(IsOpen(patient));
  EXPECT_TRUE(IsOpen(flood.back()));
  Say(patient, kWords);
  EXPECT_GE(place.Take().get(), 0);
}

TEST(AcceptorTest, WhoGoesAwaySilentlyLeavesNothingBehind) {
  AcceptorLimits limits = kLimits;
  limits.silent = 4;
  Place place(limits);
  for (int i = 0; i < 100; ++i) place.Connect("127.0.0.2");
  std::vector<OwnedFd> here;
  for (int i = 0; i < 3; ++i) here.push_back(place.Connect("127.0.0.3"));
  for (int i = 0; i < 100; ++i) place.Connect("127.0.0.2");
  const OwnedFd last = place.Connect("127.0.0.2");
  Say(last, kWords);
  EXPECT_GE(place.Take().get(), 0);
  for (const OwnedFd& fd : here) EXPECT_TRUE(IsOpen(fd));
}

void ExpectAShareThatIsGivenAgain() {
  AcceptorLimits limits = kLimits;
  limits.per_host = 3;
  Place place(limits);
  std::vector<OwnedFd> clients, taken;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(place.Connect("127.0.0.2"));
    Say(clients.back(), kWords);
    taken.push_back(place.Take());
    ASSERT_GE(taken.back().get(), 0);
  }
  EXPECT_TRUE(IsClosed(place.Connect("127.0.0.2")));
  const OwnedFd other = place.Connect("127.0.0.3");
  Say(other, kWords);
  EXPECT_GE(place.Take().get(), 0);

  taken.pop_back();  // as gRPC closes one
  OwnedFd again;
  for (int i = 0; i < 100 && again.get() < 0; ++i) {
    const OwnedFd next = place.Connect("127.0.0.2");
    send(next.get(), kWords, 24, MSG_NOSIGNAL);
    again = place.Take(100);
  }
  EXPECT_GE(again.get(), 0);
}

TEST(AcceptorTest, OneHostGetsItsShareAndGetsItAgain) {
  ExpectAShareThatIsGivenAgain();
}

// To this thread, and to those that it starts, the kernel has no SO_COOKIE from now
// on, as in gVisor; false if it does not let itself be told.
bool ForgetCookies() {
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_getsockopt, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
               offsetof(seccomp_data, args) + 2 * sizeof(uint64_t)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SO_COOKIE, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOPROTOOPT),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program = {static_cast<unsigned short>(std::size(steps)),
                              steps};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(AcceptorTest, SharesNeedNoCookies) {
  bool forgotten = false;
  std::thread([&] {
    forgotten = ForgetCookies();
    if (forgotten) ExpectAShareThatIsGivenAgain();
  }).join();
  if (!forgotten) GTEST_SKIP() << "no system calls can be refused here";
}

TEST(AcceptorTest, DescriptorsStayForTheProcessItself) {
  const OwnedFd next(open("/dev/null", O_RDONLY | O_CLOEXEC));
  AcceptorLimits limits = kLimits;
  limits.descriptors = next.get() + 40;
  Place place(limits);
  std::vector<OwnedFd> clients;  // they are in the same process, and count too
  for (int i = 0; i < 60; ++i) {
    clients.push_back(place.Connect());
    send(clients.back().get(), kWords, 24, MSG_NOSIGNAL);
    // While there are descriptors: before the other clients have taken them.
    if (i == 0) {
      EXPECT_GE(place.Take().get(), 0);
    }
  }
  EXPECT_TRUE(IsClosed(clients.back()));
  EXPECT_LE(OwnedFd(dup(0)).get(), limits.descriptors + 60);
}

TEST(AcceptorTest, WhoIsGoneMakesRoomAndCostsNobodyElse) {
  const OwnedFd next(open("/dev/null", O_RDONLY | O_CLOEXEC));
  AcceptorLimits limits = kLimits;
  limits.descriptors = next.get() + 40;
  std::counting_semaphore<> go_on(0);
  Place place(limits, "127.0.0.1:0", &go_on);
  const OwnedFd patient = place.Connect("127.0.0.2");
  OwnedFd gone = place.Connect("127.0.0.3");
  const OwnedFd first = place.Connect();
  Say(first, kWords);
  const OwnedFd first_taken = place.Take();
  const OwnedFd second = place.Connect();
  Say(second, kWords);
  go_on.release();
  const OwnedFd second_taken = place.Take();
  // While it is accepting, and hears nobody: all descriptors are taken, one goes
  // away and another comes.
  std::vector<OwnedFd> hoard;
  do {
    hoard.emplace_back(dup(0));
  } while (hoard.back().get() < limits.descriptors);
  gone = OwnedFd();
  const OwnedFd newcomer = place.Connect();
  Say(newcomer, kWords);
  go_on.release(2);
  EXPECT_GE(place.Take().get(), 0);
  EXPECT_TRUE(IsOpen(patient));
}

TEST(AcceptorTest, OutlivesAProcessWithoutDescriptors) {
  Place place;
  // Made beforehand, for there will be none.
  std::vector<OwnedFd> clients;
  for (int i = 0; i < 10; ++i) {
    clients.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 200;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<OwnedFd> hoard;
  for (OwnedFd fd(dup(0)); fd.get() >= 0; fd = OwnedFd(dup(0))) {
    hoard.push_back(std::move(fd));
  }
  EXPECT_EQ(errno, EMFILE);
  for (const OwnedFd& client : clients) {
    place.ConnectAs("127.0.0.1", client.get());
    EXPECT_TRUE(IsClosed(client)) << "it waits for ever";
  }
  hoard.clear();
  const OwnedFd client = place.Connect();
  Say(client, kWords);
  EXPECT_GE(place.Take().get(), 0);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(AcceptorTest, UnixSocketsAreBoundedToo) {
  TempDir folder;
  AcceptorLimits limits = kLimits;
  limits.silent = 2;
  Place place(limits, "unix:" + (folder / "socket"));
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  std::strcpy(name.sun_path, (folder / "socket").c_str());
  std::vector<OwnedFd> clients;
  for (int i = 0; i < 5; ++i) {
    clients.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(clients.back().get(), reinterpret_cast<sockaddr*>(&name),
                      sizeof(name)),
              0);
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(IsClosed(clients[i]));
  Say(clients[4], kWords);
  EXPECT_GE(place.Take().get(), 0);
  EXPECT_TRUE(IsOpen(clients[3]));
}

TEST(AcceptorLimitsTest, LeaveDescriptorsAndShareThem) {
  for (int limit : {256, 1024, 20'000, 1 << 20}) {
    const AcceptorLimits limits = AcceptorLimits::Of(limit);
    EXPECT_LE(limits.descriptors, limit - 16) << limit;
    EXPECT_GE(limits.descriptors, limit / 2) << limit;
    EXPECT_LE(limits.silent, limit / 8) << limit;
    EXPECT_LE(limits.per_host, limit / 2) << limit;
  }
}

}  // namespace
}  // namespace flotilla
